"""What datasets of photos share: a listing of files becomes a store of resized photos, and that a benchmark."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from fscil.benchmark import Benchmark, checksum, draw_shots, split
from fscil.datasets.decode import RESIDENT_BYTES, Resize
from fscil.datasets.photo_check import check_readable
from fscil.datasets.photo_store import Store
from fscil.datasets.registry import LAST_TRIAL, TRIAL, Dataset
from fscil.environment import whole_number
from fscil.errors import UserError
from fscil.images import Images, subset
from fscil.photos import Photos
from fscil.progress import stage_progress
from fscil.settings import setting

PREPARED = "prepared"  # the folder of stores, beside the datasets


@dataclass(frozen=True)
class Listing:
    """The files of a dataset, those for training first; a class's files are in the order that shots are drawn from."""

    class_names: Sequence[str]  # in order of arrival
    paths: Sequence[Path]
    names: Sequence[str]  # of the files, as published session lists have them: class folder/file name
    labels: Sequence[int]
    training: int  # how many are for training

    def counts(self) -> tuple[Counter[int], Counter[int]]:
        """Training and test images by label."""
        return Counter(self.labels[: self.training]), Counter(self.labels[self.training :])


@dataclass(frozen=True)
class PhotoOptions:
    trial: int = setting(1, TRIAL, least=0, most=LAST_TRIAL)


@dataclass(frozen=True)
class PhotoDataset:
    name: str
    description: str
    resize: Resize
    base_classes: int
    way: int
    sessions: int
    list_files: Callable[[Path], Listing]  # of a data folder; raises UserError
    how_to_get: str
    defaults: Mapping[str, object]
    shot: int = 5
    images_of_class: tuple[int | None, int | None] = (None, None)  # training and test; None: classes differ
    images_in_all: tuple[int, int] | None = None  # training and test
    published: tuple[str, ...] = ()  # checksums of the field's session lists

    def listing(self, root: Path | None) -> Listing:
        if root is None:
            raise UserError(f"{self.name}: no data folder is given; {self.how_to_get}")
        return self.list_files(root)

    def store(self, root: Path, listing: Listing) -> Store:
        folder = root / PREPARED / f"{self.name}-{self.resize.size}px"
        return Store(folder, listing.paths, listing.names, self.resize)

    def load(self, options: PhotoOptions, root: Path | None) -> Benchmark:
        listing = self.listing(root)
        assert root is not None
        store = self.store(root, listing)
        self._prepare(store)
        images = self._images(store)
        labels = torch.tensor(listing.labels)
        return split(
            self.name,
            listing.class_names,
            subset(images, slice(listing.training)),
            labels[: listing.training],
            listing.names[: listing.training],
            subset(images, slice(listing.training, None)),
            labels[listing.training :],
            base_classes=self.base_classes,
            ways=[self.way] * self.sessions,
            shots=[self.shot] * self.sessions,
            trial=options.trial,
            warnings=[*self.count_warnings(listing), *self.session_warnings(listing)],
        )

    def _images(self, store: Store) -> Images:
        shards = store.open()
        photos, size = Photos(shards), shards.size
        are_square = bool((shards.heights == size).all() and (shards.widths == size).all())
        return photos[:] if are_square and photos.shape.numel() <= RESIDENT_BYTES else photos

    # -- checks ------------------------------------------------------------------------------------------------------
    def session_checksums(self, listing: Listing, trial: int = 1) -> list[str]:
        """Of every session's files, in the published lists' form."""
        of_class: list[list[str]] = [[] for _ in listing.class_names]
        for name, label in zip(listing.names[: listing.training], listing.labels, strict=False):
            of_class[label].append(name)
        sessions = [[name for names in of_class[: self.base_classes] for name in names]]
        for first in range(self.base_classes, self.base_classes + self.sessions * self.way, self.way):
            chosen = of_class[first : first + self.way]
            sessions.append([names[j] for names in chosen for j in draw_shots(len(names), self.shot, trial)])
        return [checksum(sorted(session)) for session in sessions]

    def count_warnings(self, listing: Listing) -> list[str]:
        """A warning if classes, or all of them together, do not have the images they should have."""
        training, test = listing.counts()
        wrong = [
            (name, kind, counts[label], expected)
            for kind, counts, expected in zip(("training", "test"), (training, test), self.images_of_class, strict=True)
            for label, name in enumerate(listing.class_names)
            if expected is not None and counts[label] != expected
        ]
        warnings = []
        if wrong:
            name, kind, count, expected = wrong[0]
            more = f", {len({name for name, *_ in wrong})} classes in all are wrong" if len(wrong) > 1 else ""
            warnings.append(f"class {name} has {count} {kind} images, not {expected}{more}")
        found = training.total(), test.total()
        if self.images_in_all not in (None, found):
            here, there = (
                f"{first} training and {second} test images" for first, second in (found, self.images_in_all)
            )
            warnings.append(f"there are {here}, not {there}")
        return [f"{self.name}: {line}; numbers may not be comparable" for line in warnings]

    def session_warnings(self, listing: Listing) -> list[str]:
        if not self.published or self.session_checksums(listing) == list(self.published):
            return []
        return [f"{self.name}: file names or their order differ from the published lists, so the sessions differ"]

    # -- fscil data --------------------------------------------------------------------------------------------------
    def prepare(self, root: Path | None) -> str:
        listing = self.listing(root)
        assert root is not None
        store = self.store(root, listing)
        if not store.missing():
            return f"{self.name} is already prepared at {store.folder}; nothing to do"
        self._prepare(store)
        stored = sum(os.path.getsize(path) for path in store.shards)
        return f"{self.name}: {len(listing.paths)} images are now at {store.folder} ({stored / 2**30:.1f} GiB)"

    def verify(self, root: Path | None) -> list[str]:
        listing = self.listing(root)
        assert root is not None
        training, test = listing.counts()
        lines = [
            f"ok: {len(listing.class_names)} classes with {training.total()} training and {test.total()} test images"
        ]
        lines += [f"warning: {line}" for line in self.count_warnings(listing)]
        for i, (own, published) in enumerate(zip(self.session_checksums(listing), self.published, strict=False)):
            same = f"ok: session {i} is the published one ({published})"
            lines.append(same if own == published else f"warning: session {i} is not the published one ({own})")
        store = self.store(root, listing)
        if self._is_incomplete(store):
            check_readable(self.name, store)
            return [*lines, f"ok: all images can be read; `fscil data prepare {self.name}` has not stored them yet"]
        damaged = store.damaged()
        if damaged:
            raise UserError(
                f"{self.name}: {_some(damaged)} are damaged in {store.folder}; delete it, then run `fscil data prepare "
                f"{self.name}`"
            )
        return [*lines, f"ok: all images are stored at {store.folder}, and their checksums are right"]

    def _is_incomplete(self, store: Store) -> bool:
        try:
            return store.missing() > 0
        except UserError:  # a photo is not there: then all of them are looked at
            return True

    def _prepare(self, store: Store) -> None:
        if not store.missing():
            store.prepare()  # removes what is no longer needed
        else:
            console = Console(stderr=True, quiet=whole_number("LOCAL_RANK", 0, least=0) > 0)  # one of a group shows it
            with stage_progress(console, f"prepare {self.name}", len(store.paths)) as progress:
                store.prepare(progress.update)

    def dataset(self) -> Dataset:
        return Dataset(
            name=self.name,
            description=self.description,
            options=PhotoOptions,
            load=self.load,
            defaults=self.defaults,
            prepare=self.prepare,
            verify=self.verify,
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
