"""AutoAugment's geometric operations: each is a matrix per image, and one nearest-pixel lookup serves them all.

A matrix [2, 3] maps a pixel of the result (column x, row y, 1) to the place in the source where its value is found.
"""

from __future__ import annotations

import torch
from torch import Tensor


def identity_matrix(n: int, like: Tensor) -> Tensor:
    """float32 [n, 2, 3] on the device of like, free to be written to."""
    return torch.eye(2, 3, device=like.device).repeat(n, 1, 1)


def shear_x_matrix(amount: Tensor, height: int, width: int) -> Tensor:
    """Rows move left by amount [n] times their distance from the top edge; row centres lie at y + 1/2."""
    matrix = identity_matrix(len(amount), amount)
    matrix[:, 0, 1] = amount
    matrix[:, 0, 2] = amount / 2
    return matrix


def shear_y_matrix(amount: Tensor, height: int, width: int) -> Tensor:
    """Columns move up by amount [n] times their distance from the left edge."""
    matrix = identity_matrix(len(amount), amount)
    matrix[:, 1, 0] = amount
    matrix[:, 1, 2] = amount / 2
    return matrix


def translate_x_matrix(pixels: Tensor, height: int, width: int) -> Tensor:
    """Move right by pixels [n], the fraction dropped."""
    matrix = identity_matrix(len(pixels), pixels)
    matrix[:, 0, 2] = -pixels.trunc()
    return matrix


def translate_y_matrix(pixels: Tensor, height: int, width: int) -> Tensor:
    """Move down by pixels [n], the fraction dropped."""
    matrix = identity_matrix(len(pixels), pixels)
    matrix[:, 1, 2] = -pixels.trunc()
    return matrix


def rotate_matrix(degrees: Tensor, height: int, width: int) -> Tensor:
    """Turn counter-clockwise by degrees [n] about the image's centre."""
    angle = degrees.deg2rad()
    cos, sin = angle.cos(), angle.sin()
    centre_x, centre_y = (width - 1) / 2, (height - 1) / 2
    matrix = identity_matrix(len(degrees), degrees)
    matrix[:, 0, 0] = cos
    matrix[:, 0, 1] = -sin
    matrix[:, 0, 2] = centre_x - cos * centre_x + sin * centre_y
    matrix[:, 1, 0] = sin
    matrix[:, 1, 1] = cos
    matrix[:, 1, 2] = centre_y - sin * centre_x - cos * centre_y
    return matrix


MATRICES = {
    "shear_x": shear_x_matrix,
    "shear_y": shear_y_matrix,
    "translate_x": translate_x_matrix,
    "translate_y": translate_y_matrix,
    "rotate": rotate_matrix,
}


def warp(images: Tensor, matrix: Tensor, fill: int) -> Tensor:
    """Each pixel of the result takes the nearest source pixel; beyond the source's edges it takes fill."""
    n, channels, height, width = images.shape
    x = torch.arange(width, device=images.device)
    y = torch.arange(height, device=images.device)
    by_column, by_row = matrix[:, :, 0, None] * x, matrix[:, :, 1, None] * y + matrix[:, :, 2, None]
    column, row = (by_column[:, :, None, :] + by_row[:, :, :, None]).round_().unbind(1)  # each [n, height, width]
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    # The fill is one more pixel behind the image's last, so that a single lookup finds source pixels and fill alike.
    source = torch.where(inside, row * width + column, height * width).long().view(n, 1, -1)
    pixels = torch.cat([images.flatten(2), images.new_full((1, 1, 1), fill).expand(n, channels, 1)], dim=2)
    return pixels.gather(2, source.expand(-1, channels, -1)).view_as(images)


def shear_x(images: Tensor, amount: Tensor, fill: int = 0) -> Tensor:
    return warp(images, shear_x_matrix(amount, *images.shape[-2:]), fill)


def shear_y(images: Tensor, amount: Tensor, fill: int = 0) -> Tensor:
    return warp(images, shear_y_matrix(amount, *images.shape[-2:]), fill)


def translate_x(images: Tensor, pixels: Tensor, fill: int = 0) -> Tensor:
    return warp(images, translate_x_matrix(pixels, *images.shape[-2:]), fill)


def translate_y(images: Tensor, pixels: Tensor, fill: int = 0) -> Tensor:
    return warp(images, translate_y_matrix(pixels, *images.shape[-2:]), fill)


def rotate(images: Tensor, degrees: Tensor, fill: int = 0) -> Tensor:
    return warp(images, rotate_matrix(degrees, *images.shape[-2:]), fill)
