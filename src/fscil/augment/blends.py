"""AutoAugment's operations that mix an image with a poorer version of itself: grey for color, smoothed for sharpness.

1 + change is the image's weight in the mix: below 1 the result moves towards the poorer version, above 1 away from it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fscil.augment.tables import grey, per_image, to_bytes


def blend(images: Tensor, poorer: Tensor, change: Tensor) -> Tensor:
    """images + change * (images - poorer) in whole grey levels; poorer is float32, change [n]."""
    pixels = images.float()
    return to_bytes(torch.addcmul(pixels, pixels - poorer, per_image(change)))


def grey_image(images: Tensor) -> Tensor:
    return grey(images)[:, None].expand(images.shape)


def smoothed(images: Tensor) -> Tensor:
    """Weighted mean of each pixel's 3 x 3 surroundings, the pixel itself counting five times; the border is unchanged.

    Sums of whole numbers in int16 (at most 13 * 255) are exact and several times faster than a convolution.
    """
    pixels = images.to(torch.int16)
    if min(images.shape[-2:]) < 3:
        return pixels.float()
    rows = pixels[..., :-2, :] + pixels[..., 1:-1, :] + pixels[..., 2:, :]
    square = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    square += 4 * pixels[..., 1:-1, 1:-1]
    result = pixels.float()
    result[..., 1:-1, 1:-1] = (square / 13).round_()
    return result


POORER = {"color": grey_image, "sharpness": smoothed}


def color(images: Tensor, change: Tensor) -> Tensor:
    return blend(images, grey_image(images), change)


def sharpness(images: Tensor, change: Tensor) -> Tensor:
    return blend(images, smoothed(images), change)
