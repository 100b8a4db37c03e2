"""AutoAugment's geometric operations: each is a matrix per image, and one nearest-pixel lookup serves them all.

A matrix [2, 3] maps a pixel of the result (column x, row y, 1) to the place in the source where its value is found.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fscil.images import to_device

GEOMETRIC = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")


def matrices(operation: Tensor, amount: Tensor, height: int, width: int) -> Tensor:
    """float32 [n, 2, 3] for one operation per image: its position in GEOMETRIC and its amount, both [n].

    Positive amounts shear rows to the left and columns upwards (in pixels per pixel from the top or left edge), move
    right and down (in pixels, the fraction dropped) and turn counter-clockwise about the centre (in degrees).
    """
    here = operation[:, None] == torch.arange(len(GEOMETRIC), device=amount.device)
    shear_x, shear_y, right, down, degrees = torch.where(here, amount[:, None], 0.0).unbind(1)
    cos, sin = degrees.deg2rad().cos(), degrees.deg2rad().sin()
    x, y = (width - 1) / 2, (height - 1) / 2
    # Each image has one operation and the amounts of the others are 0, so the terms below never overlap. Pixel centres
    # lie half a pixel from the edges that shears start from.
    start_x = x - cos * x + sin * y + shear_x / 2 - right.trunc()
    start_y = y - sin * x - cos * y + shear_y / 2 - down.trunc()
    return torch.stack([cos, shear_x - sin, start_x, shear_y + sin, cos, start_y], dim=1).view(-1, 2, 3)


def warp(images: Tensor, matrix: Tensor, fill: int) -> Tensor:
    """Each pixel of the result takes the nearest source pixel; beyond the source's edges it takes fill."""
    n, channels, height, width = images.shape
    x = torch.arange(width, device=images.device)
    y = torch.arange(height, device=images.device)
    by_column, by_row = matrix[:, :, 0, None] * x, matrix[:, :, 1, None] * y + matrix[:, :, 2, None]
    column, row = (by_column[:, :, None, :] + by_row[:, :, :, None]).round_().unbind(1)  # each [n, height, width]
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    # The fill is one more pixel behind the image's last, so that one lookup serves both source pixels and fill.
    source = torch.where(inside, row * width + column, height * width).long().view(n, 1, -1)
    pixels = torch.cat([images.flatten(2), images.new_full((1, 1, 1), fill).expand(n, channels, 1)], dim=2)
    return pixels.gather(2, source.expand(-1, channels, -1)).view_as(images)


def move(images: Tensor, operation: Tensor, amount: Tensor, fill: int = 0) -> Tensor:
    """One geometric operation per image; its number and amount may be on the host."""
    return warp(images, to_device(matrices(operation, amount, *images.shape[-2:]), images.device), fill)


def _move_all(name: str, images: Tensor, amount: Tensor, fill: int) -> Tensor:
    return move(images, torch.full_like(amount, GEOMETRIC.index(name)), amount, fill)


def shear_x(images: Tensor, amount: Tensor, fill: int = 0) -> Tensor:
    return _move_all("shear_x", images, amount, fill)


def shear_y(images: Tensor, amount: Tensor, fill: int = 0) -> Tensor:
    return _move_all("shear_y", images, amount, fill)


def translate_x(images: Tensor, pixels: Tensor, fill: int = 0) -> Tensor:
    return _move_all("translate_x", images, pixels, fill)


def translate_y(images: Tensor, pixels: Tensor, fill: int = 0) -> Tensor:
    return _move_all("translate_y", images, pixels, fill)


def rotate(images: Tensor, degrees: Tensor, fill: int = 0) -> Tensor:
    return _move_all("rotate", images, degrees, fill)
