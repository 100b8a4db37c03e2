"""Triton kernels of fused_norm.py. An activation is a matrix [rows, channels], cut into tiles."""

from __future__ import annotations

import triton
import triton.language as tl

ROWS = tl.constexpr(256)  # of a tile
CHANNELS = tl.constexpr(16)  # of a tile: few enough that one compiled kernel serves all layers
PARTS = tl.constexpr(512)  # the most parts that the rows are split into for summation


@triton.jit
def place(channels):
    """Which group of channels a program works on, and where in the rows: adjacent groups read the same cache lines."""
    groups = channels // CHANNELS
    return tl.program_id(0) % groups * CHANNELS + tl.arange(0, CHANNELS), tl.program_id(0) // groups


@triton.jit
def tile(number, channel, rows, channels):
    """The offsets of a tile's elements, and which of its rows exist."""
    row = number * ROWS + tl.arange(0, ROWS)
    return row[:, None] * channels + channel[None, :], (row < rows)[:, None]


@triton.jit
def keep(partial, first, second, channel, part, channels):
    """A program's two sums per channel go to partial [2, parts, channels]."""
    at = part * channels + channel
    tl.store(partial + at, tl.sum(first, 0))
    tl.store(partial + tl.num_programs(0) * CHANNELS + at, tl.sum(second, 0))


@triton.jit
def kept(partial, channel, parts, channels):
    """All parts' sums, twice [PARTS, CHANNELS], and a mask of those that exist."""
    part = tl.arange(0, PARTS)[:, None]
    at, there = part * channels + channel[None, :], part < parts
    first = tl.load(partial + at, there, 0.0)
    return first, tl.load(partial + parts * channels + at, there, 0.0), part, there


@triton.jit(do_not_specialize=["tiles"])
def sums(x, partial, rows, channels, tiles):
    """Sums of x and of its squares, less the first row, so that a large mean does not spoil a small variance."""
    channel, part = place(channels)
    first = tl.load(x + channel).to(tl.float32)[None, :]
    of_x = tl.zeros([ROWS, CHANNELS], tl.float32)
    of_squares = tl.zeros([ROWS, CHANNELS], tl.float32)
    for i in range(tiles):
        at, there = tile(part * tiles + i, channel, rows, channels)
        value = tl.where(there, tl.load(x + at, there, 0.0).to(tl.float32) - first, 0.0)
        of_x += value
        of_squares += value * value
    keep(partial, of_x, of_squares, channel, part, channels)


@triton.jit(do_not_specialize=["tiles", "parts"])
def statistics(
    x, partial, mean, inverse_std, running_mean, running_variance, tracked, momentum, eps, rows, channels, tiles, parts
):
    """Mean and 1 / std, from each part's own mean and squared deviations: no difference of large numbers."""
    c, _ = place(channels)
    of_x, of_squares, part, there = kept(partial, c, parts, channels)
    n = tl.minimum(rows - part * tiles * ROWS, tiles * ROWS)  # rows of a part
    n = tl.where(there, n, 1).to(tl.float32)
    own = of_x / n
    mu = tl.sum(of_x, 0) / rows
    deviation = own - mu[None, :]
    mu += tl.load(x + c).to(tl.float32)
    squares = tl.sum(tl.where(there, of_squares - of_x * own + n * deviation * deviation, 0.0), 0)
    tl.store(mean + c, mu)
    tl.store(inverse_std + c, 1 / tl.sqrt(squares / rows + eps))
    tl.store(running_mean + c, (1 - momentum) * tl.load(running_mean + c) + momentum * mu)
    unbiased = squares / (rows - 1)
    tl.store(running_variance + c, (1 - momentum) * tl.load(running_variance + c) + momentum * unbiased)
    if tl.program_id(0) == 0:
        tl.store(tracked, tl.load(tracked) + 1)


@triton.jit
def normalise(x, shortcut, y, weight, bias, mean, inverse_std, rows, channels, HAS_SHORTCUT: tl.constexpr):
    """y = max(w x^ + b + s, 0)"""
    c, number = place(channels)
    w = (tl.load(weight + c) * tl.load(inverse_std + c))[None, :]
    at, there = tile(number, c, rows, channels)
    z = (tl.load(x + at, there).to(tl.float32) - tl.load(mean + c)[None, :]) * w + tl.load(bias + c)[None, :]
    if HAS_SHORTCUT:
        z += tl.load(shortcut + at, there).to(tl.float32)
    # divergence must be visible: NaN stays NaN
    tl.store(y + at, tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL), there)


@triton.jit(do_not_specialize=["tiles"])
def gradient_sums(
    g, x, y, ds, weight, bias, mean, inverse_std, partial, rows, channels, tiles, HAS_SHORTCUT: tl.constexpr
):
    """Sums of g x^ and of g, where y > 0; with a shortcut, that g is also stored."""
    c, part = place(channels)
    w, b = tl.load(weight + c)[None, :], tl.load(bias + c)[None, :]
    mu, inverse = tl.load(mean + c)[None, :], tl.load(inverse_std + c)[None, :]
    of_gx = tl.zeros([ROWS, CHANNELS], tl.float32)
    of_g = tl.zeros([ROWS, CHANNELS], tl.float32)
    for i in range(tiles):
        at, there = tile(part * tiles + i, c, rows, channels)
        gradient = tl.load(g + at, there, 0.0).to(tl.float32)
        difference = tl.load(x + at, there, 0.0).to(tl.float32) - mu
        if HAS_SHORTCUT:
            gradient = tl.where(tl.load(y + at, there, 0.0) > 0, gradient, 0.0)
            tl.store(ds + at, gradient, there)
        else:
            gradient = tl.where(difference * (w * inverse) + b > 0, gradient, 0.0)
        of_gx += gradient * difference * inverse
        of_g += gradient
    keep(partial, of_gx, of_g, c, part, channels)


@triton.jit(do_not_specialize=["parts"])
def total(partial, dw, db, channels, parts):
    """Over all parts."""
    c, _ = place(channels)
    of_gx, of_g, _, _ = kept(partial, c, parts, channels)
    tl.store(dw + c, tl.sum(of_gx, 0))
    tl.store(db + c, tl.sum(of_g, 0))


@triton.jit
def input_gradient(g, x, dx, weight, bias, mean, inverse_std, dw, db, rows, channels, MASKED: tl.constexpr):
    """dL/dx = w / std (g - mean(g) - x^ mean(g x^)); g is already masked, or is here."""
    c, number = place(channels)
    w, b = tl.load(weight + c)[None, :], tl.load(bias + c)[None, :]
    mu, inverse = tl.load(mean + c)[None, :], tl.load(inverse_std + c)[None, :]
    mean_gx, mean_g = tl.load(dw + c)[None, :] / rows, tl.load(db + c)[None, :] / rows
    at, there = tile(number, c, rows, channels)
    gradient = tl.load(g + at, there, 0.0).to(tl.float32)
    difference = tl.load(x + at, there, 0.0).to(tl.float32) - mu
    if not MASKED:
        gradient = tl.where(difference * (w * inverse) + b > 0, gradient, 0.0)
    tl.store(dx + at, w * inverse * (gradient - mean_g - difference * inverse * mean_gx), there)
