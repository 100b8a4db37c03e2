"""Attention of many tokens to many classes, in blocks: exact, and in bounded memory however many there are."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

SIDE = 1024  # of the largest square of scores: larger ones leave the processor's cache, and are slower
CACHE = 1.0  # MiB of a matrix [classes, d] that is worked on at once, so that it stays near the processor


def attend(asks: Tensor, keys: Tensor, values: Tensor, room: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """asks [n, d], keys and values [C, d] -> what is got [n, d], and its log-mass: log(sum of exp(score)) [n, 1]

    The scores are made in the room [n, C], if there is one.
    """
    scores = torch.mm(asks, keys.T, out=room)
    highest = scores.detach().amax(1, keepdim=True)  # so that no exponential overflows
    share = scores.sub_(highest).exp_()
    mass = share.sum(1, keepdim=True)
    got = (values.T @ share.T).T  # the product of two wide matrices is faster than that of two tall ones
    return got.div_(mass), mass.log().add_(highest)


def merge(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """What is got from two sets of classes, and its log-masses -> from both"""
    return torch.lerp(one[0], other[0], torch.sigmoid(other[1] - one[1])), torch.logaddexp(one[1], other[1])


def attend_in_blocks(asks: Tensor, keys: Tensor, values: Tensor, memory: float) -> tuple[Tensor, ...]:
    """As attend, with no more than `memory` MiB of scores at a time."""
    side = max(1, min(SIDE, math.isqrt(int(memory * 2**20) // keys.element_size())))
    space = None if torch.is_grad_enabled() else keys.new_empty(min(side, len(asks)) * min(side, len(keys)))

    def to_some(asks: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        room = None if space is None else space[: len(asks) * len(keys)].view(len(asks), len(keys))
        return attend(asks, keys, values, room)

    def to_all(asks: Tensor) -> tuple[Tensor, Tensor]:
        blocks = zip(keys.split(side), values.split(side), strict=True)
        return functools.reduce(merge, (to_some(asks, *block) for block in blocks))

    return in_blocks(to_all, asks, n=side)


def in_blocks(
    function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor, n: int | None = None
) -> tuple[Tensor, ...]:
    """function(*tensors), which treats every row alone, for n rows at a time: what it needs meanwhile stays small"""
    rows, n = len(tensors[0]), n or at_once(CACHE, 8 * tensors[0].shape[1])
    if rows <= n:
        return function(*tensors)
    found: tuple[Tensor, ...] = ()
    for i in range(0, rows, n):
        block = function(*(tensor[i : i + n] for tensor in tensors))
        found = found or tuple(x.new_empty(rows, *x.shape[1:]) for x in block)
        for whole, part in zip(found, block, strict=True):
            whole[i : i + n] = part
    return found


def at_once(memory: float, width: int) -> int:
    """How many rows of so many bytes fit in so many MiB; at least one."""
    return max(1, int(memory * 2**20) // width)
