"""Triton kernels for 3 x 3 convolutions of few channels, which cuDNN runs at a fraction of the memory bandwidth.

Images are stored as [pixels, C], weights as [out, 3, 3, in], where out and in are also C. So the inputs of an output
pixel from one row of the image are contiguous: three pixels of C channels, 3 C numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl

PIXELS = tl.constexpr(128)  # of a tile


@triton.jit
def neighbours(x, m, r, pixels, height, width, C: tl.constexpr):
    """For the pixels m: the left, same and right column, r - 1 rows below; zero outside the image.

    [PIXELS, 4 C], since Triton wants powers of two: the last quarter is zero.
    """
    k = tl.arange(0, 4 * C)
    row, column = m // width % height + r, (m % width)[:, None] + (k // C)[None, :]  # both counted from 1
    inside = (m < pixels) & (row >= 1) & (row <= height)
    there = inside[:, None] & (column >= 1) & (column <= width) & (k < 3 * C)[None, :]
    return tl.load(x + (m + (r - 1) * width - 1)[:, None] * C + k[None, :], there, 0.0)


@triton.jit(do_not_specialize=["height", "width"])
def convolve(x, weight, y, pixels, height, width, C: tl.constexpr, OF_INPUT: tl.constexpr):
    """y = x * weight; or, for the gradient of the input, with the weight flipped: in and out swapped, last first."""
    m = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    k, out = tl.arange(0, 4 * C)[:, None], tl.arange(0, C)[None, :]
    result = tl.zeros([PIXELS, C], tl.float32)
    for r in tl.static_range(3):
        if OF_INPUT:  # noqa: SIM108
            at = ((k % C * 3 + 2 - r) * 3 + 2 - k // C) * C + out
        else:
            at = (out * 3 + r) * (3 * C) + k
        w = tl.load(weight + at, k < 3 * C, 0.0)
        result = tl.dot(neighbours(x, m, r, pixels, height, width, C), w, result)
    tl.store(y + m[:, None] * C + out, result, (m < pixels)[:, None])


@triton.jit(do_not_specialize=["height", "width", "tiles"])
def weight_gradient(x, g, partial, pixels, height, width, tiles, C: tl.constexpr):
    """A part's sum over pixels, for one of the three rows of the weight: partial [parts, out, 3, 3, in]."""
    part, r = tl.program_id(0) // 3, tl.program_id(0) % 3
    out, k = tl.arange(0, C)[:, None], tl.arange(0, 4 * C)[None, :]
    result = tl.zeros([C, 4 * C], tl.float32)
    for i in range(tiles):
        m = (part * tiles + i) * PIXELS + tl.arange(0, PIXELS)
        gradient = tl.load(g + m[:, None] * C + tl.arange(0, C)[None, :], (m < pixels)[:, None], 0.0)
        result = tl.dot(tl.trans(gradient), neighbours(x, m, r, pixels, height, width, C), result)
    tl.store(partial + ((part * C + out) * 3 + r) * (3 * C) + k, result, k < 3 * C)
