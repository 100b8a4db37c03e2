"""Triton kernels for convolutions of 16 channels by 3 x 3, which cuDNN computes at a fraction of the memory's speed.

Images lie in memory as [pixels, channels], weights as [out, 3, 3, in]. So the inputs of an output pixel that stand in
one row of the image lie side by side: three pixels of 16 channels, a tile of 48 numbers beside every pixel.
"""

from __future__ import annotations

import triton
import triton.language as tl

PIXELS = tl.constexpr(128)  # of a tile
C = tl.constexpr(16)  # channels
ROW = tl.constexpr(48)  # 3 pixels of an image's row
WIDTH = tl.constexpr(64)  # the power of two that holds them


@triton.jit
def neighbours(x, m, r, pixels, height, width):
    """Of the pixels m: their left, own and right neighbour, r - 1 rows below; zero outside of the image."""
    k = tl.arange(0, WIDTH)
    row, column = m // width % height + r, (m % width)[:, None] + (k // C)[None, :]  # both counted from 1
    inside = (m < pixels) & (row >= 1) & (row <= height)
    there = inside[:, None] & (column >= 1) & (column <= width) & (k < ROW)[None, :]
    return tl.load(x + (m + (r - 1) * width - 1)[:, None] * C + k[None, :], there, 0.0)


@triton.jit(do_not_specialize=["height", "width"])
def convolve(x, weight, y, pixels, height, width, OF_INPUT: tl.constexpr):
    """y = x * weight; or, for the gradient of the input, with the weight turned around: in for out, last for first."""
    m = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    k, out = tl.arange(0, WIDTH)[:, None], tl.arange(0, C)[None, :]
    result = tl.zeros([PIXELS, C], tl.float32)
    for r in tl.static_range(3):
        if OF_INPUT:  # noqa: SIM108
            at = k % C * (3 * ROW) + (2 - r) * ROW + (2 - k // C) * C + out
        else:
            at = out * (3 * ROW) + r * ROW + k
        w = tl.load(weight + at, k < ROW, 0.0)
        result = tl.dot(neighbours(x, m, r, pixels, height, width), w, result)
    tl.store(y + m[:, None] * C + out, result, (m < pixels)[:, None])


@triton.jit(do_not_specialize=["height", "width", "tiles"])
def weight_gradient(x, g, partial, pixels, height, width, tiles):
    """A part's sum over pixels, for one of the three rows of the weight: partial [parts, out, 3, 3, in]."""
    part, r = tl.program_id(0) // 3, tl.program_id(0) % 3
    out, k = tl.arange(0, C)[:, None], tl.arange(0, WIDTH)[None, :]
    result = tl.zeros([C, WIDTH], tl.float32)
    for i in range(tiles):
        m = (part * tiles + i) * PIXELS + tl.arange(0, PIXELS)
        gradient = tl.load(g + m[:, None] * C + tl.arange(0, C)[None, :], (m < pixels)[:, None], 0.0)
        result = tl.dot(tl.trans(gradient), neighbours(x, m, r, pixels, height, width), result)
    tl.store(partial + part * (3 * C * ROW) + out * (3 * ROW) + r * ROW + k, result, k < ROW)
