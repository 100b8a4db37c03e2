"""AutoAugment's pixelwise operations: each is a table from old to new grey level, looked up for every pixel.

A table is uint8 [n, 3, 256], one per image and channel. The functions take images and magnitude even where the table
does not depend on them, so that all have one signature: (images uint8 [n, 3, h, w], magnitude float [n]) -> table.
"""

from __future__ import annotations

import torch
from torch import Tensor


def apply_table(images: Tensor, table: Tensor) -> Tensor:
    return table.gather(2, images.flatten(2).long()).view_as(images)


def per_image(values: Tensor, ndim: int = 4) -> Tensor:
    """[n] -> [n, 1, ..., 1] with ndim dimensions, ready to broadcast over images."""
    return values.view(-1, *[1] * (ndim - 1))


def _levels(like: Tensor) -> Tensor:
    return torch.arange(256, device=like.device)


def to_bytes(values: Tensor) -> Tensor:
    """Fractions of a grey level are dropped, as Pillow and torchvision do.

    A thousandth is added first: float32 noise, which differs between devices, must not turn an exact 40 into 39.
    """
    return (values + 1e-3).clamp_(0, 255).to(torch.uint8)


def _to_table(values: Tensor) -> Tensor:
    return to_bytes(values).expand(-1, 3, -1)


def grey(images: Tensor) -> Tensor:
    """Luma of ITU-R 601 in whole grey levels, float32 [n, h, w]."""
    red, green, blue = images.unbind(1)
    return (red * 0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114).floor_()


def brightness_table(images: Tensor, change: Tensor) -> Tensor:
    """Blend with black: every level times 1 + change."""
    levels = _levels(images)
    return _to_table(levels + per_image(change, 3) * levels)


def contrast_table(images: Tensor, change: Tensor) -> Tensor:
    """Blend with the image's mean grey: 1 + change times the distance from it."""
    mean = grey(images).mean(dim=(1, 2))
    levels = _levels(images)
    return _to_table(levels + per_image(change, 3) * (levels - per_image(mean, 3)))


def posterize_table(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest bits [n] of each value."""
    dropped = per_image(8 - bits.long(), 3)
    return _to_table(_levels(images) >> dropped << dropped)


def solarize_table(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels from threshold [n] upwards."""
    levels = _levels(images)
    return _to_table(torch.where(levels >= per_image(threshold, 3), 255 - levels, levels))


def invert_table(images: Tensor, unused: Tensor | None = None) -> Tensor:
    return _to_table((255 - _levels(images)).expand(len(images), 1, 256))


def autocontrast_table(images: Tensor, unused: Tensor | None = None) -> Tensor:
    """Stretch each channel to 0 .. 255; a channel with a single level stays unchanged."""
    pixels = images.flatten(2)
    darkest = pixels.amin(2, keepdim=True).float()
    stretch = (pixels.amax(2, keepdim=True) - darkest) * (1 / 255)
    flat = stretch == 0
    return _to_table((_levels(images) - darkest.masked_fill(flat, 0)) / stretch.masked_fill(flat, 1))


def equalize_table(images: Tensor, unused: Tensor | None = None) -> Tensor:
    """Flatten each channel's histogram by Pillow's integer rule; a channel with too few levels stays unchanged.

    The rule: with step = (pixels below the brightest level in use) // 255, level k becomes
    (pixels darker than k + step // 2) // step.
    """
    pixels = images.flatten(2).long()
    histogram = torch.zeros(*pixels.shape[:2], 256, dtype=torch.int32, device=images.device)
    histogram.scatter_add_(2, pixels, torch.ones_like(histogram[:, :, :1]).expand_as(pixels))
    brightest = pixels.amax(2, keepdim=True)
    step = (pixels.shape[2] - histogram.gather(2, brightest)) // 255
    darker = histogram.cumsum(2, dtype=torch.int32) - histogram
    table = (darker + step // 2) // step.clamp(min=1)
    return _to_table(torch.where(step > 0, table, _levels(images)))


TABLES = {
    "brightness": brightness_table,
    "contrast": contrast_table,
    "posterize": posterize_table,
    "solarize": solarize_table,
    "autocontrast": autocontrast_table,
    "equalize": equalize_table,
    "invert": invert_table,
}


def brightness(images: Tensor, change: Tensor) -> Tensor:
    return apply_table(images, brightness_table(images, change))


def contrast(images: Tensor, change: Tensor) -> Tensor:
    return apply_table(images, contrast_table(images, change))


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    return apply_table(images, posterize_table(images, bits))


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    return apply_table(images, solarize_table(images, threshold))


def autocontrast(images: Tensor) -> Tensor:
    return apply_table(images, autocontrast_table(images))


def equalize(images: Tensor) -> Tensor:
    return apply_table(images, equalize_table(images))


def invert(images: Tensor) -> Tensor:
    return apply_table(images, invert_table(images))
