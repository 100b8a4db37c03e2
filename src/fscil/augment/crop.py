"""Crops, flips and cutout of a whole batch: pure functions of given parameters, and their random versions."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from fscil.augment.draws import Draws
from fscil.images import to_device
from fscil.photos import Wholes


def crop(images: Tensor, top: Tensor, left: Tensor, size: int) -> Tensor:
    """The size x size window of each image whose upper left corner is (top, left), both int64 [n].

    The windows' rows are runs of neighbouring bytes, so they are copied as runs: the flat batch is seen as overlapping
    rows of length size, and the wanted ones are selected by where they start.
    """
    n, channels, height, width = images.shape
    flat = images.contiguous().view(-1)
    runs = flat.as_strided((flat.numel() - size + 1, size), (1, 1))
    planes = torch.arange(n * channels, device=images.device).view(n, channels, 1) * (height * width)
    rows = torch.arange(size, device=images.device) * width
    starts = planes + rows + (top * width + left).view(n, 1, 1)
    return runs.index_select(0, starts.view(-1)).view(n, channels, size, size)


def pad_crop(images: Tensor, top: Tensor, left: Tensor, *, size: int, padding: int) -> Tensor:
    """Zero-pad all four sides, then crop at (top, left) of the padded images."""
    return crop(pad(images, [padding] * 4), top, left, size)


def random_pad_crop(images: Tensor, draws: Draws, *, size: int, padding: int) -> Tensor:
    """Images larger than the crop already have room for it, so they are not padded."""
    height, width = images.shape[-2:]
    padding = padding if min(height, width) <= size else 0
    top = draws.integers(height + 2 * padding - size + 1)
    left = draws.integers(width + 2 * padding - size + 1)
    return pad_crop(images, to_device(top, images.device), to_device(left, images.device), size=size, padding=padding)


def flip(images: Tensor, chosen: Tensor) -> Tensor:
    """Mirror the images where chosen (bool [n], on the host) left to right."""
    if not chosen.any():
        return images
    rows = to_device(chosen.nonzero().flatten(), images.device)
    return images.index_copy(0, rows, images.index_select(0, rows).flip(-1))


def random_flip(images: Tensor, draws: Draws) -> Tensor:
    return flip(images, draws.uniform() < 0.5)


def cutout(images: Tensor, row: Tensor, column: Tensor, size: int) -> Tensor:
    """Blacken a size x size square around (row, column), int64 [n]; what extends beyond the image is cut off."""
    height, width = images.shape[-2:]
    rows = torch.arange(height, device=images.device) - row[:, None] + size // 2
    columns = torch.arange(width, device=images.device) - column[:, None] + size // 2
    outside_rows = (rows < 0) | (rows >= size)
    outside_columns = (columns < 0) | (columns >= size)
    return images * (outside_rows[:, None, :, None] | outside_columns[:, None, None, :])


def random_cutout(images: Tensor, draws: Draws, *, size: int) -> Tensor:
    height, width = images.shape[-2:]
    row, column = draws.integers(height), draws.integers(width)
    return cutout(images, to_device(row, images.device), to_device(column, images.device), size)


def resized_crop(images: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor, size: int) -> Tensor:
    """The boxes (top, left, height, width; each [n]) of the images, resized to size x size.

    Bilinear without antialiasing: where a box is larger than the result, pixels are skipped rather than averaged. That
    is mild in the benchmarks: at 224 pixels, a box of a photo with a short side of 256 shrinks by 1.53 at most.
    """
    full_height, full_width = images.shape[-2:]
    steps = torch.arange(size, device=images.device) + 0.5

    def coordinates(start: Tensor, length: Tensor, full: int) -> Tensor:
        """[n, size]: where the result's pixel centres lie in the image, in grid_sample's units."""
        inside = (steps * length[:, None] / size - 0.5).clamp(min=0).minimum(length[:, None] - 1.0)
        return (start[:, None] + inside + 0.5) * (2 / full) - 1

    y = coordinates(top, height, full_height)[:, :, None].expand(-1, -1, size)
    x = coordinates(left, width, full_width)[:, None, :].expand(-1, size, -1)
    sampled = grid_sample(images.float(), torch.stack([x, y], dim=-1), mode="bilinear", align_corners=False)
    return sampled.round_().clamp_(0, 255).to(torch.uint8)


def random_boxes(
    height: int | Tensor,
    width: int | Tensor,
    draws: Draws,
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    tries: int = 10,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """top, left, height, width (int64 [n]) of boxes with uniform area share and log-uniform width : height.

    Height and width may differ from image to image (int64 [n]). A box that does not fit is drawn again; all tries are
    drawn at once and the first that fits is kept. An image with none gets the largest central box of an allowed ratio.
    """
    height, width = (torch.as_tensor(side).expand(len(draws.keys)) for side in (height, width))
    area = (scale[0] + (scale[1] - scale[0]) * draws.uniform(tries)) * (height * width)[:, None]
    low, high = map(math.log, ratio)
    aspect = (low + (high - low) * draws.uniform(tries)).exp()
    widths = (area * aspect).sqrt().round().long()
    heights = (area / aspect).sqrt().round().long()
    fits = (widths > 0) & (widths <= width[:, None]) & (heights > 0) & (heights <= height[:, None])
    first = fits.int().argmax(dim=1, keepdim=True)
    any_fits = fits.gather(1, first).squeeze(1)
    central_height, central_width = _central_box(height, width, ratio)
    box_height = torch.where(any_fits, heights.gather(1, first).squeeze(1), central_height)
    box_width = torch.where(any_fits, widths.gather(1, first).squeeze(1), central_width)
    top = torch.where(any_fits, draws.integers(height - box_height + 1), (height - central_height) // 2)
    left = torch.where(any_fits, draws.integers(width - box_width + 1), (width - central_width) // 2)
    return top, left, box_height, box_width


def _central_box(height: Tensor, width: Tensor, ratio: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """The largest box of an allowed ratio."""
    low, high = ratio
    return height.minimum((width / low).round().long()), width.minimum((height * high).round().long())


def random_resized_crop(images: Tensor | Wholes, draws: Draws, *, size: int, smallest: float = 0.08) -> Tensor:
    """Boxes of at least this share of the image's area, resized."""
    if isinstance(images, Wholes):
        boxes = random_boxes(images.heights, images.widths, draws, scale=(smallest, 1.0))
        return images.resized_crops(*boxes, size)
    boxes = random_boxes(images.shape[-2], images.shape[-1], draws, scale=(smallest, 1.0))
    top, left, height, width = (to_device(each, images.device) for each in boxes)
    return resized_crop(images, top, left, height, width, size)


def centre_crop(images: Tensor, size: int) -> Tensor:
    height, width = images.shape[-2:]
    top, left = (height - size) // 2, (width - size) // 2
    return images[:, :, top : top + size, left : left + size]
