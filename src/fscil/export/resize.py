"""Pillow's resizing as matrix products, so that an exported model takes photos of any size as they were decoded.

Images are stored as the middle square of a photo, resized by Pillow's bilinear filter (datasets/decode.py). Pixel i of
the result lies at (i + 1/2) s / size along the square, which is s pixels wide, and is a weighted mean of the pixels
around it, those beyond the square included; weights fall linearly to 0 at a distance of one pixel of the result, or of
the photo if that is the smaller. Pillow goes over an image twice, across and down, with weights in units of 2^-22, and
rounds to whole numbers both times. So does this: the result is the same, bit for bit. It often lies exactly between
two whole numbers, and in single precision the logits of a small encoder moved by up to 0.4 % of the largest.
"""

from __future__ import annotations

from functools import cache
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from fscil.datasets.decode import decode_image

ONE = 2.0**22  # the unit of weights


class Resize(nn.Module):
    """uint8 [n, height, width, 3] -> whole numbers, float32 [n, 3, size, size]"""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.tall_down_first = size, pillow_goes_down_first()

    def forward(self, images: Tensor) -> Tensor:
        _, height, width, _ = images.shape
        short = cast(int, torch.sym_min(height, width))  # while exporting, sizes are symbols
        across, down = weights(width, short, self.size).T, weights(height, short, self.size)
        pixels = images.permute(0, 3, 1, 2).double()
        if not self.tall_down_first:
            return across_first(pixels, across, down).float()
        is_tall = height - width > abs(width - self.size)
        if not torch.compiler.is_compiling():
            return (down_first if is_tall else across_first)(pixels, across, down).float()
        found: Tensor = torch.cond(is_tall, down_first, across_first, (pixels, across, down))
        return found.float()


def weights(length: int, short: int, size: int) -> Tensor:
    """Of the pixels of a side in those of the result, in units of 2^-22: whole numbers, float64 [size, length]"""
    places, centres = 2 * torch.arange(length) + 1 - (length - short), 2 * torch.arange(size) + 1
    distance = (places * size - (centres * short)[:, None]).abs().double()
    reach = 2 * cast(int, torch.sym_max(short, size))
    found = F.relu(1 - distance / reach)
    return (found / found.sum(1, keepdim=True) * ONE + 0.5).floor()


def across_first(pixels: Tensor, across: Tensor, down: Tensor) -> Tensor:
    return rounded(down @ rounded(pixels @ across))


def down_first(pixels: Tensor, across: Tensor, down: Tensor) -> Tensor:
    return rounded(rounded(down @ pixels) @ across)


def rounded(sums: Tensor) -> Tensor:
    """Halves up; torch and ONNX would round them to even numbers."""
    return (sums / ONE + 0.5).floor()


@cache
def pillow_goes_down_first() -> bool:
    """Pillow used to go across an image first; since version 13 it goes down first if that is tall."""
    width, height, size = 16, 64, 8
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    stored = torch.from_numpy(decode_image(Image.fromarray(noise), size, "noise")).permute(2, 0, 1)
    parts = (
        torch.from_numpy(noise).permute(2, 0, 1).double(),
        weights(width, width, size).T,
        weights(height, width, size),
    )
    differ = [int((order(*parts) != stored).sum()) for order in (down_first, across_first)]
    return differ[0] < differ[1]
