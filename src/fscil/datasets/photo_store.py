"""Photos resized once and stored uncompressed, so that training reads them as fast as memory allows.

A store is a folder of shards. A shard holds the pixels of some hundred photos, and its name is a digest of how they
were made: the files' names, sizes and times, and what was done to them. So a shard that exists is complete and current,
an interrupted preparation continues with the missing ones, and several processes can prepare the same store.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from filelock import FileLock
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fscil.datasets.decode import Resize, decode_resized, file_facts, read_bytes
from fscil.errors import UserError
from fscil.files import file_name_bytes, write_atomically
from fscil.photos import Shards
from fscil.reading import thread_count

FORMAT = "1"  # to be raised if the same files would become other pixels
SHARD = 512  # photos
RAW_SHARE = 1.4  # times a square of that side: what a photo takes on average (1.37 in CUB200)

OnShard = Callable[[int], None]  # how many photos are done


@dataclass(frozen=True)
class Store:
    """What a dataset's photos are stored as, and where."""

    folder: Path
    paths: Sequence[Path]
    names: Sequence[str]  # of the photos; unlike paths, they do not depend on where the dataset is
    resize: Resize

    @cached_property
    def parts(self) -> list[slice]:
        return [slice(first, first + SHARD) for first in range(0, len(self.paths), SHARD)]

    @cached_property
    def shards(self) -> list[Path]:
        """The file of every part, whether it exists or not."""
        facts = file_facts(self.paths, self.names)
        return [self.folder / f"{self._digest(facts[part])}.safetensors" for part in self.parts]

    def _digest(self, facts: Sequence[str]) -> str:
        text = "\n".join([FORMAT, str(self.resize), *facts])
        return hashlib.sha256(file_name_bytes(text)).hexdigest()[:24]

    def missing(self) -> int:
        """Photos that are not in the store yet."""
        return sum(
            len(self.paths[part]) for part, path in zip(self.parts, self.shards, strict=True) if not path.exists()
        )

    def prepare(self, on_shard: OnShard | None = None) -> None:
        """Write the missing shards, and remove those of files that have changed."""
        missing = self.missing()
        if missing == 0:
            self._clean()
            return
        self._check_space(missing)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error
        done = 0
        for part, path in zip(self.parts, self.shards, strict=True):
            lock = path.with_suffix(".lock")
            with self._held(lock):  # another process may be at this one: then it is waited for
                try:
                    if not path.exists():
                        for unfinished in self.folder.glob(f".{path.name}.*.part"):  # of a process that was killed
                            unfinished.unlink(missing_ok=True)
                        self._write(part, path)
                finally:
                    lock.unlink(missing_ok=True)  # only by its holder, or a third process would not wait
            done += len(self.paths[part])
            if on_shard:
                on_shard(done)
        self._clean()

    @contextmanager
    def _held(self, lock: Path) -> Iterator[None]:
        held = FileLock(lock)
        try:
            held.acquire()
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            yield
        finally:
            held.release()

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(f"cannot write {self.folder}: {error.strerror}; choose a --root you may write to")

    def _clean(self) -> None:
        """Remove shards of files that have changed, and what was begun of them."""
        current = {path.stem for path in self.shards}
        with suppress(OSError):  # a folder that may not be written to, or is not there
            for entry in list(self.folder.iterdir()):
                if entry.name.lstrip(".").partition(".")[0] not in current:
                    entry.unlink()

    def _write(self, part: slice, path: Path) -> None:
        paths = self.paths[part]

        def read(place: int) -> NDArray[np.uint8]:
            image = decode_resized(read_bytes(paths[place]), self.resize, str(paths[place]))
            return np.ascontiguousarray(image.transpose(2, 0, 1))

        with ThreadPoolExecutor(thread_count()) as threads:
            images = [torch.from_numpy(image) for image in threads.map(read, range(len(paths)))]
        content = {
            "pixels": torch.cat([image.flatten() for image in images]),
            "heights": torch.tensor([image.shape[1] for image in images]),
            "widths": torch.tensor([image.shape[2] for image in images]),
        }
        digests = ",".join(map(digest, images))
        write_atomically(path, safetensors.torch.save(content, {"digests": digests}))

    def _check_space(self, photos: int) -> None:
        """Refuse before the work rather than in the middle of it."""
        needed = int(photos * 3 * self.resize.size**2 * RAW_SHARE)
        above = next(folder for folder in (self.folder, *self.folder.parents) if folder.exists())
        free = shutil.disk_usage(above).free
        if free < needed:
            raise UserError(
                f"{self.folder} will take about {needed / 2**30:.1f} GiB, but {free / 2**30:.1f} are free; free some "
                "space, or choose another --root"
            )

    def open(self) -> Shards:
        """The stored photos, mapped into memory."""
        pixels, shard, starts, heights, widths, digests = [], [], [], [], [], []
        for i, path in enumerate(self.shards):
            content, own = _open(path)
            lengths = 3 * content["heights"] * content["widths"]
            pixels.append(content["pixels"])
            shard.append(torch.full_like(lengths, i))
            starts.append(lengths.cumsum(0) - lengths)
            heights.append(content["heights"])
            widths.append(content["widths"])
            digests += own
        return Shards(
            pixels,
            torch.cat(shard),
            torch.cat(starts),
            torch.cat(heights),
            torch.cat(widths),
            digests,
            self.resize.size,
            self.resize.squash,
        )

    def damaged(self) -> list[str]:
        """Names of photos whose stored pixels are not those that were written."""
        shards = self.open()
        views = shards.views(torch.arange(len(shards)))
        shapes = zip(shards.heights.tolist(), shards.widths.tolist(), strict=True)
        return [
            name
            for name, view, (height, width), written in zip(self.names, views, shapes, shards.digests, strict=True)
            if digest(view.view(3, height, width)) != written
        ]


def digest(image: Tensor) -> str:
    """Of shape and pixels."""
    found = hashlib.sha256(f"{list(image.shape)}".encode())
    found.update(image.numpy().data)
    return found.hexdigest()[:16]


def _open(path: Path) -> tuple[dict[str, Tensor], list[str]]:
    try:
        with safe_open(path, "pt") as file:
            content = {name: file.get_tensor(name) for name in ("pixels", "heights", "widths")}
            digests = file.metadata()["digests"].split(",")
        count = int((3 * content["heights"] * content["widths"]).sum())
        if len(digests) != len(content["heights"]) or count != len(content["pixels"]):
            raise ValueError("its parts do not fit together")
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged; delete it, then run `fscil data prepare` again") from error
    return content, digests
