"""Attention of many tokens to many classes, in blocks: exact, and in bounded memory however many there are."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

SIDE = 1024  # side of the largest square of scores: larger ones do not fit in the processor's cache, and are slower
CACHE = 1.0  # MiB of a matrix [classes, d] that is processed at once, so that it stays in the cache


def attend(tokens: Tensor, keys: Tensor, values: Tensor, buffer: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """tokens [n, d], keys and values [C, d] -> attended values [n, d], and their log-mass: log(sum exp(score)) [n, 1]

    Scores are written into the buffer [n, C], if there is one.
    """
    scores = torch.mm(tokens, keys.T, out=buffer)
    highest = scores.detach().amax(1, keepdim=True)  # subtracted so that no exponential overflows
    share = scores.sub_(highest).exp_()
    mass = share.sum(1, keepdim=True)
    attended = (values.T @ share.T).T  # the product of two wide matrices is faster than that of two tall ones
    return attended.div_(mass), mass.log().add_(highest)


def merge(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Attended values and log-masses over two disjoint sets of classes -> over their union"""
    return torch.lerp(one[0], other[0], torch.sigmoid(other[1] - one[1])), torch.logaddexp(one[1], other[1])


def attend_in_blocks(tokens: Tensor, keys: Tensor, values: Tensor, memory: float) -> tuple[Tensor, ...]:
    """Like attend, with no more than `memory` MiB of scores at a time."""
    if torch.compiler.is_compiling():  # an exported program must not depend on how many there are
        return attend(tokens, keys, values)
    side = max(1, min(SIDE, math.isqrt(int(memory * 2**20) // keys.element_size())))
    space = None
    if not torch.is_grad_enabled():
        space = keys.new_empty(min(side, len(tokens)) * min(side, len(keys)))

    def to_some(tokens: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        buffer = None if space is None else space[: len(tokens) * len(keys)].view(len(tokens), len(keys))
        return attend(tokens, keys, values, buffer)

    def to_all(tokens: Tensor) -> tuple[Tensor, Tensor]:
        blocks = zip(keys.split(side), values.split(side), strict=True)
        return functools.reduce(merge, (to_some(tokens, *block) for block in blocks))

    return in_blocks(to_all, tokens, n=side)


def in_blocks(
    function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor, n: int | None = None
) -> tuple[Tensor, ...]:
    """function(*tensors), which treats each row independently, n rows at a time to keep intermediate results small"""
    if torch.compiler.is_compiling():
        return function(*tensors)
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
    """How many rows of `width` bytes fit into `memory` MiB; at least one."""
    return max(1, int(memory * 2**20) // width)
