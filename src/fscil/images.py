"""Images: a tensor, photos of differing size, or files that are read when their pixels are needed.

All are indexed in the same way and return a uint8 tensor on the device, so training code need not know which of them it
has. Only code that selects images without reading their pixels needs `subset`, and only random crops need `wholes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fscil.files import file_name_bytes
from fscil.photos import Index, Photos, Wholes, on_host
from fscil.photos import to_device as to_device
from fscil.reading import Read, Reading

T = TypeVar("T")
Colour = tuple[float, float, float]  # a number for each channel

MEASURED = 30_000  # images at most: all of CIFAR100's base, and of streamed photos what a core decodes in a minute


@dataclass(frozen=True)
class Source:
    """Where images are read from, one by one."""

    read: Read
    size: int  # height and width
    recipe: str  # how files become pixels
    facts: Sequence[str]  # by row, what identifies an image without reading it
    copied: Sequence[str] | None = None  # by row, the facts shared by a copy on another machine; None: all of them


class StreamedImages:
    """Stands for a tensor uint8 [n, 3, size, size]. Indexing reads the pixels and puts them onto the device."""

    def __init__(self, source: Source, rows: Tensor | None = None, device: torch.device | str = "cpu") -> None:
        self.source = source
        self.rows = torch.arange(len(source.facts)) if rows is None else rows
        self.device = torch.device(device)
        self.prefetched: Reading | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.rows), 3, self.source.size, self.source.size))

    def to(self, device: torch.device | str) -> StreamedImages:
        return StreamedImages(self.source, self.rows, device)

    def subset(self, index: Tensor | slice) -> StreamedImages:
        return StreamedImages(self.source, self.rows[on_host(index)], self.device)

    def __getitem__(self, index: Index) -> Tensor:
        rows = self.rows[on_host(index)]
        wanted = rows.flatten().tolist()
        if self.prefetched is not None and self.prefetched.rows == wanted:
            reading, self.prefetched = self.prefetched, None
        else:
            reading = Reading(self.source.read, wanted, self.source.size)
        return torch.from_numpy(reading.result()).view(*rows.shape, *self.shape[1:]).to(self.device)

    def prefetch(self, index: Index) -> None:
        if self.prefetched is not None:
            self.prefetched.stop()
        rows = self.rows[on_host(index)].flatten().tolist()
        self.prefetched = Reading(self.source.read, rows, self.source.size)

    def split(self, size: int) -> Iterator[Tensor]:
        """Batch by batch, like Tensor.split."""
        return in_parts(self, torch.arange(len(self)), size)


Images = Tensor | StreamedImages | Photos


def subset(images: Images, index: Tensor | slice) -> Images:
    """Some of the images; their pixels are not read yet."""
    return images[index] if isinstance(images, Tensor) else images.subset(index)


def pixels(images: Images, index: Tensor) -> Tensor:
    """images[index], for an index on the host."""
    return images[to_device(index, images.device) if isinstance(images, Tensor) else index]


def wholes(images: Images, index: Tensor) -> Tensor | Wholes:
    """images[index], uncropped if they are photos: what an augmentation crops."""
    return images.wholes(index) if isinstance(images, Photos) else pixels(images, index)


def prefetch(images: Images, index: Tensor) -> None:
    """Announce that images[index] comes next: what is not in memory is read in the background."""
    if not isinstance(images, Tensor):
        images.prefetch(index)


def in_parts(images: Images, index: Tensor, size: int) -> Iterator[Tensor]:
    """images[index], for an index on the host, `size` at a time; the next part is read while the last one is in use."""
    return _in_parts(pixels, images, index, size)


def wholes_in_parts(images: Images, index: Tensor, size: int) -> Iterator[Tensor | Wholes]:
    """The same, uncropped if they are photos."""
    return _in_parts(wholes, images, index, size)


def _in_parts(read: Callable[[Images, Tensor], T], images: Images, index: Tensor, size: int) -> Iterator[T]:
    parts = index.split(size)
    for part, following in zip_longest(parts, parts[1:]):
        found = read(images, part)
        if following is not None:
            prefetch(images, following)
        yield found


def mean_and_deviation(images: Images) -> tuple[Colour, Colour]:
    """Of each channel's pixels in [0, 1]. Where there are more than MEASURED images, evenly spaced ones are measured.

    Pixels are counted by value, so nothing is rounded before the end: any order and any machine gives the same numbers.
    """
    counts = np.zeros((3, 256), np.int64)
    measured = min(len(images), MEASURED)
    for part in in_parts(images, torch.arange(measured) * len(images) // measured, 256):
        for channel, values in enumerate(part.cpu().unbind(1)):
            counts[channel] += np.bincount(values.flatten().numpy(), minlength=256)
    red, green, blue = (_moments([int(count) for count in channel]) for channel in counts)
    return (red[0], green[0], blue[0]), (red[1], green[1], blue[1])


def _moments(counts: Sequence[int]) -> tuple[float, float]:
    """Mean and standard deviation, at least one grey level, since images are divided by it."""
    n = sum(counts)
    total = sum(count * value for value, count in enumerate(counts))
    squares = sum(count * value**2 for value, count in enumerate(counts))
    return total / n / 255, max(1.0, math.sqrt(n * squares - total**2) / n) / 255


def contents(images: Images) -> bytes | memoryview:
    """What identifies the images: their pixels, digests of them or, for streamed images, facts about the files."""
    if isinstance(images, Photos):
        kind = "squashed" if images.shards.squash else "cropped"
        return "\n".join([f"photos of {images.shards.size} pixels, {kind}", *images.digests]).encode()
    if isinstance(images, StreamedImages):
        facts = (images.source.facts[row] for row in images.rows.tolist())
        return file_name_bytes("\n".join([images.source.recipe, *facts]))
    return images.cpu().contiguous().numpy().data


def contents_of_copies(images: Images) -> bytes | memoryview:
    """The same for comparing copies on different machines: the modification time of files is left out."""
    if isinstance(images, StreamedImages) and images.source.copied is not None:
        return file_name_bytes("\n".join(images.source.copied[row] for row in images.rows.tolist()))
    return contents(images)
