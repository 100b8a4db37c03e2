"""Photos: images of differing size, kept whole, so that random crops in training can reach every part of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import zip_longest
from threading import Thread

import torch
from torch import Tensor

from fscil.reading import thread_count

Index = Tensor | slice | int
COPIED_AT_ONCE = 512  # photos, to a GPU
FREE_SHARE = 0.4  # of a GPU's free memory that photos may take; more of them stay on the host and are streamed


@dataclass(frozen=True)
class Wholes:
    """A batch of photos on a device, each as three planes of bytes; the shorter side of every photo is `size`.

    `squash` says what stands for a photo where a square is needed: all of it, squashed, or its middle.
    """

    flat: Tensor  # uint8 [bytes]
    starts: Tensor  # int64 [n], the first byte of every photo, on the same device
    heights: Tensor  # int64 [n], on the host
    widths: Tensor  # int64 [n], on the host
    size: int
    squash: bool = False

    def __len__(self) -> int:
        return len(self.heights)

    @property
    def device(self) -> torch.device:
        return self.flat.device

    def split(self, count: int) -> Iterator[Wholes]:
        """`count` photos at a time."""
        for first in range(0, len(self), count):
            here = slice(first, first + count)
            yield replace(self, starts=self.starts[here], heights=self.heights[here], widths=self.widths[here])

    def squares(self) -> Tensor:
        """Every photo as a square, uint8 [n, 3, size, size]."""
        size = self.size
        if len(self) == 0:
            return self.flat.new_empty(0, 3, size, size)
        if self.squash:
            nowhere = torch.zeros_like(self.heights)
            return self.resized_crops(nowhere, nowhere, self.heights, self.widths, size)
        corner = (self.heights - size) // 2 * self.widths + (self.widths - size) // 2
        planes = torch.arange(3) * (self.heights * self.widths)[:, None]
        rows = torch.arange(size) * self.widths[:, None]
        offsets = corner[:, None, None] + planes[:, :, None] + rows[:, None, :]
        starts = self.starts[:, None, None] + to_device(offsets, self.device)
        runs = self.flat.as_strided((self.flat.numel() - size + 1, size), (1, 1))  # a row's bytes are neighbours
        return runs.index_select(0, starts.view(-1)).view(len(self), 3, size, size)

    def resized_crops(self, top: Tensor, left: Tensor, height: Tensor, width: Tensor, size: int) -> Tensor:
        """Boxes (int64 [n] each, on the host), resized to uint8 [n, 3, size, size]; see augment.crop.resized_crop."""
        device = self.device
        top, left, height, width, photo_heights, photo_widths = (
            to_device(each, device) for each in (top, left, height, width, self.heights, self.widths)
        )
        steps = torch.arange(size, device=device) + 0.5

        def places(start: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            """[n, size]: the pixels before and after every place, and how far it is on the way between them."""
            inside = (steps * length[:, None] / size - 0.5).clamp(min=0).minimum(length[:, None] - 1.0)
            before = inside.long()
            after = (before + 1).minimum(length[:, None] - 1)
            return start[:, None] + before, start[:, None] + after, inside - before

        y0, y1, down = places(top, height)
        x0, x1, right = places(left, width)
        down, right = down[:, :, None], right[:, None, :]
        channels = []
        for channel in range(3):
            plane = (self.starts + channel * photo_heights * photo_widths)[:, None]
            upper, lower = (plane + y * photo_widths[:, None] for y in (y0, y1))

            def at(row: Tensor, x: Tensor) -> Tensor:
                return self.flat[row[:, :, None] + x[:, None, :]].float()

            above = torch.lerp(at(upper, x0), at(upper, x1), right)
            below = torch.lerp(at(lower, x0), at(lower, x1), right)
            channels.append(torch.lerp(above, below, down).round_().to(torch.uint8))
        return torch.stack(channels, 1)


@dataclass(frozen=True)
class Shards:
    """Where the bytes of photos are: files mapped into memory, or a single tensor on a GPU."""

    pixels: Sequence[Tensor]  # uint8 [bytes] each
    shard: Tensor  # int64 [photos], which of them a photo is in
    starts: Tensor  # int64 [photos], its first byte there
    heights: Tensor  # int64 [photos]
    widths: Tensor  # int64 [photos]
    digests: Sequence[str]  # of the photos' pixels
    size: int  # the shorter side of every photo
    squash: bool = False  # see Wholes

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def device(self) -> torch.device:
        return self.pixels[0].device

    def read(self, rows: Tensor, pinned: bool = False) -> Tensor:
        """The bytes of these photos one after another, copied by all threads; pinned memory can be sent to a GPU."""
        views = self.views(rows)
        if self.device.type == "cuda":
            return torch.cat([self.pixels[0][:0], *views]).cpu()
        ends = [0, *self.bytes_of(rows).cumsum(0).tolist()]
        flat = torch.empty(ends[-1], dtype=torch.uint8, pin_memory=pinned)
        share = -(-len(views) // thread_count())

        def copy(first: int) -> None:
            last = min(first + share, len(views))
            torch.cat(views[first:last], out=flat[ends[first] : ends[last]])

        with ThreadPoolExecutor(thread_count()) as threads:
            list(threads.map(copy, range(0, len(views), share or 1)))
        return flat

    def views(self, rows: Tensor) -> list[Tensor]:
        """The bytes of each of these photos, not copied."""
        places = zip(self.shard[rows].tolist(), self.starts[rows].tolist(), self.bytes_of(rows).tolist(), strict=True)
        return [self.pixels[shard][start : start + count] for shard, start, count in places]

    def bytes_of(self, rows: Tensor) -> Tensor:
        return 3 * self.heights[rows] * self.widths[rows]

    def on(self, device: torch.device, rows: Tensor) -> Shards:
        """These photos alone, on a device."""
        lengths = self.bytes_of(rows)
        starts = lengths.cumsum(0) - lengths
        flat = torch.empty(int(lengths.sum()), dtype=torch.uint8, device=device)
        done = 0
        for part in rows.split(COPIED_AT_ONCE):  # pinned memory is never given back: take little
            found = self.read(part, pinned=device.type == "cuda")
            flat[done : done + len(found)].copy_(found)
            done += len(found)
        digests = [self.digests[row] for row in rows.tolist()]
        places = torch.zeros_like(lengths), starts
        return Shards([flat], *places, self.heights[rows], self.widths[rows], digests, self.size, self.squash)


class Photos:
    """Stands for a tensor uint8 [n, 3, size, size], the photos as squares. `wholes` gives all of them."""

    def __init__(self, shards: Shards, rows: Tensor | None = None, device: torch.device | str = "cpu") -> None:
        self.shards = shards
        self.rows = torch.arange(len(shards)) if rows is None else rows
        self.device = torch.device(device)
        self.prefetched: tuple[Tensor, Future[Tensor]] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.rows), 3, self.shards.size, self.shards.size))

    @property
    def digests(self) -> list[str]:
        return [self.shards.digests[row] for row in self.rows.tolist()]

    @property
    def _resident(self) -> bool:
        return self.shards.device.type == self.device.type

    def to(self, device: torch.device | str) -> Photos:
        device, now = torch.device(device), self.shards.device
        if now.type != device.type and (device.type == "cpu" or self._fit_on(device)):
            return Photos(self.shards.on(device, self.rows), device=device)
        return Photos(self.shards, self.rows, device)

    def _fit_on(self, device: torch.device) -> bool:
        return int(self.shards.bytes_of(self.rows).sum()) <= FREE_SHARE * torch.cuda.mem_get_info(device)[0]

    def subset(self, index: Tensor | slice) -> Photos:
        return Photos(self.shards, self.rows[on_host(index)], self.device)

    def __getitem__(self, index: Index) -> Tensor:
        rows = self.rows[on_host(index)]
        return self._read(rows.flatten()).squares().view(*rows.shape, *self.shape[1:])

    def wholes(self, index: Tensor) -> Wholes:
        return self._read(self.rows[on_host(index)])

    def prefetch(self, index: Tensor) -> None:
        """Announce that these photos come next: what is not on the device yet is read in the background."""
        if self._resident:
            return
        rows, found = self.rows[on_host(index)].flatten(), Future[Tensor]()

        def read() -> None:
            try:
                found.set_result(self.shards.read(rows, pinned=True))
            except BaseException as error:  # raised where the photos are requested
                found.set_exception(error)

        Thread(target=read, daemon=True).start()  # a process that ends does not wait for it
        self.prefetched = rows, found

    def split(self, count: int) -> Iterator[Tensor]:
        """Batch by batch, like Tensor.split."""
        parts = torch.arange(len(self)).split(count)
        for part, following in zip_longest(parts, parts[1:]):
            found = self[part]
            if following is not None:
                self.prefetch(following)
            yield found

    def _read(self, rows: Tensor) -> Wholes:
        shards = self.shards
        heights, widths = shards.heights[rows], shards.widths[rows]
        if shards.device.type == "cuda":
            return Wholes(
                shards.pixels[0],
                to_device(shards.starts[rows], self.device),
                heights,
                widths,
                shards.size,
                shards.squash,
            )
        prefetched, self.prefetched = self.prefetched, None
        if prefetched is not None and torch.equal(prefetched[0], rows):
            flat = prefetched[1].result()
        else:
            flat = shards.read(rows, self.device.type == "cuda")
        lengths = 3 * heights * widths
        starts = to_device(lengths.cumsum(0) - lengths, self.device)
        return Wholes(flat.to(self.device, non_blocking=True), starts, heights, widths, shards.size, shards.squash)


def on_host(index: Index) -> Index:
    return index.cpu() if isinstance(index, Tensor) else index


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Copy values from the host to the device, without waiting."""
    if device.type == "cuda" and not values.is_cuda:
        values = values.pin_memory()
    return values.to(device, non_blocking=True)
