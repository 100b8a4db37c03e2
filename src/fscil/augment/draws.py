"""Random numbers that belong to an image: they depend on its key alone.

They do not depend on its neighbours, its place in the batch, the batch size, the process or the kind of device. So an
image is augmented the same way in any batch on any device, and an epoch may be split and sharded at will. The numbers
are drawn on the host, which then knows what to launch on a GPU.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# splitmix64 (Steele et al., 2014), in the two's complement that torch's int64 arithmetic wraps around in
GOLDEN = 0x9E3779B97F4A7C15 - 2**64
FIRST_FACTOR = 0xBF58476D1CE4E5B9 - 2**64
SECOND_FACTOR = 0x94D049BB133111EB - 2**64

BLOCK = 16  # numbers per image that are computed together, in one chain of operations instead of one per draw


def mix(x: Tensor) -> Tensor:
    """int64 -> int64: every bit of the result depends on every bit of x."""
    x = (x ^ _shift(x, 30)) * FIRST_FACTOR
    x = (x ^ _shift(x, 27)) * SECOND_FACTOR
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """To the right, filled with zeros."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def keys_for(items: Tensor, seed: int) -> Tensor:
    """A key for each item (int64, any shape), different for every seed."""
    return mix(mix(items * GOLDEN + seed) + seed)


def shuffled(n: int, seed: int) -> Tensor:
    """0 .. n - 1 in random order, int64 [n]."""
    return keys_for(torch.arange(n), seed).argsort()


class Draws:
    """Uniform numbers for a batch of images, taken one after another; keys int64 [n], on the host."""

    def __init__(self, keys: Tensor) -> None:
        self.keys = keys
        self.drawn = torch.empty(len(keys), 0)
        self.blocks = 0

    def uniform(self, *shape: int) -> Tensor:
        """float32 [n, *shape] in [0, 1)"""
        count = math.prod(shape)
        while self.drawn.shape[1] < count:
            numbers = torch.arange(1, BLOCK + 1) + self.blocks * BLOCK
            bits = mix(self.keys[:, None] + numbers * GOLDEN)
            self.drawn = torch.cat([self.drawn, _shift(bits, 40) * 2.0**-24], 1)
            self.blocks += 1
        taken, self.drawn = self.drawn[:, :count], self.drawn[:, count:]
        return taken.reshape(-1, *shape)

    def integers(self, bound: Tensor | int) -> Tensor:
        """One integer of 0 .. bound - 1 per image, int64 [n]; the bound may differ from image to image."""
        return (self.uniform() * bound).long()
