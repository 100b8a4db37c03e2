"""Base sessions whose images can be identified after being blended, rotated or embedded."""

from __future__ import annotations

import torch
from torch import Tensor

from fscil.benchmark import Session

# each image has one bright pixel in the upper left quarter, which a rotation moves to another quarter
PIXELS, QUARTER = (3, 16, 16), (3, 8, 8)


def unchanged(images: Tensor, keys: Tensor) -> Tensor:
    return images


def see(images: Tensor) -> Tensor:
    """Stands in for an encoder: the embedding of an image is the image."""
    return images.flatten(1).float()


def made_of(item: Tensor) -> tuple[tuple[int, ...], int]:
    """The numbers of the images that an item was made of, and by how many quarter turns.

    The bright pixels have the value 200, or 100 if there are two.
    """
    item = item.view(PIXELS)
    (turns,) = (n for n in range(4) if item.rot90(-n, (1, 2))[:, :8, :8].any())
    bright = torch.nonzero(item.rot90(-turns, (1, 2))[:, :8, :8].flatten()).flatten().tolist()
    assert sorted(item[item > 0].tolist()) == ([200] if len(bright) == 1 else [100, 100])
    return tuple(bright), turns


def make_session(counts: list[int], seed: int) -> Session:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    images = torch.zeros(len(labels), *PIXELS, dtype=torch.uint8)
    channels, rows, columns = torch.unravel_index(torch.arange(len(labels)), QUARTER)
    images[torch.arange(len(labels)), channels, rows, columns] = 200
    return Session(tuple(range(len(counts))), images, labels)
