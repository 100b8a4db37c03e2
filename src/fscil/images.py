"""Images: a tensor, or, where they would not fit, files that are read when their pixels are asked for.

Both are indexed in the same way, and what comes out is a uint8 tensor on the device, so whoever trains need not know
which of the two it has. Only who selects images without looking at them does so by `subset`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor

from fscil.reading import Read, Reading

Index = Tensor | slice | int


@dataclass(frozen=True)
class Source:
    """Where images are read from, one by one."""

    read: Read
    size: int  # height and width
    recipe: str  # how files become pixels
    facts: Sequence[str]  # by row, what tells an image from another one without reading it
    copied: Sequence[str] | None = None  # by row, those of the facts that a copy on another machine shares; else all


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
        return StreamedImages(self.source, self.rows[_on_host(index)], self.device)

    def __getitem__(self, index: Index) -> Tensor:
        rows = self.rows[_on_host(index)]
        wanted = rows.flatten().tolist()
        if self.prefetched is not None and self.prefetched.rows == wanted:
            reading, self.prefetched = self.prefetched, None
        else:
            reading = Reading(self.source.read, wanted, self.source.size)
        return torch.from_numpy(reading.result()).view(*rows.shape, *self.shape[1:]).to(self.device)

    def prefetch(self, index: Index) -> None:
        if self.prefetched is not None:
            self.prefetched.stop()
        rows = self.rows[_on_host(index)].flatten().tolist()
        self.prefetched = Reading(self.source.read, rows, self.source.size)

    def split(self, size: int) -> Iterator[Tensor]:
        """Batch by batch, as a tensor's."""
        return in_parts(self, torch.arange(len(self)), size)


Images = Tensor | StreamedImages


def subset(images: Images, index: Tensor | slice) -> Images:
    """Some of the images, of which streamed ones are not read yet."""
    return images.subset(index) if isinstance(images, StreamedImages) else images[index]


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Values of the host on the device, without waiting for it."""
    if device.type == "cuda" and not values.is_cuda:
        values = values.pin_memory()
    return values.to(device, non_blocking=True)


def pixels(images: Images, index: Tensor) -> Tensor:
    """images[index], for an index on the host."""
    return images[index if isinstance(images, StreamedImages) else to_device(index, images.device)]


def prefetch(images: Images, index: Tensor) -> None:
    """images[index] will be asked for next: streamed ones are read in the meantime."""
    if isinstance(images, StreamedImages):
        images.prefetch(index)


def in_parts(images: Images, index: Tensor, size: int) -> Iterator[Tensor]:
    """images[index], for an index on the host, so many at a time; the next are read while the last ones are in use."""
    parts = index.split(size)
    for part, following in zip_longest(parts, parts[1:]):
        found = pixels(images, part)
        if following is not None:
            prefetch(images, following)
        yield found


def contents(images: Images) -> bytes | memoryview:
    """What the images are: the pixels, or where those would have to be read, all that is known about the files."""
    if isinstance(images, StreamedImages):
        facts = (images.source.facts[row] for row in images.rows.tolist())
        return "\n".join([images.source.recipe, *facts]).encode()
    return images.cpu().contiguous().numpy().data


def contents_of_copies(images: Images) -> bytes | memoryview:
    """The same where the images are copies of each other, on whatever machine: files are not known by their time."""
    if isinstance(images, StreamedImages) and images.source.copied is not None:
        return "\n".join(images.source.copied[row] for row in images.rows.tolist()).encode()
    return contents(images)


def _on_host(index: Index) -> Index:
    return index.cpu() if isinstance(index, Tensor) else index
