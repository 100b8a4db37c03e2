"""Benchmark: a stream of sessions plus a test set (the paper's D^0 ... D^B)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

import numpy as np
import torch
from torch import Tensor

from fscil.errors import CannotLearn, UserError
from fscil.files import file_name_bytes
from fscil.images import Colour, Images, mean_and_deviation, subset

Classes = tuple[int, ...]


@dataclass(frozen=True)
class Session:
    """One step of the stream. Labels number the classes in order of arrival, over all sessions."""

    classes: Classes
    images: Images  # uint8 [n, 3, height, width]
    labels: Tensor  # int64 [n]

    def to(self, device: torch.device | str) -> Session:
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def announced(self) -> Session:
        """What may be known of a session before it arrives: its classes, and how many images of which size."""
        why = "the images of a session can be seen when it is learned, not before; take them from there"
        return replace(self, images=cast(Images, OutOfSight(self.images.shape, why)))

    @contextmanager
    def lent(self) -> Iterator[Session]:
        """The session to learn from. Afterwards its images are out of sight, even for those who kept it."""
        lent = replace(self)
        try:
            yield lent
        finally:
            why = "the images of a session can be seen while it is learned, not later; keep exemplars in self.memory"
            object.__setattr__(lent, "images", OutOfSight(self.images.shape, why))


@dataclass(frozen=True)
class OutOfSight:
    """In place of the images of a session that cannot be seen now."""

    shape: torch.Size
    why: str

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python itself asks for these, for instance when it copies
            raise AttributeError(name)
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UserError(self.why)


@dataclass(frozen=True)
class Pool:
    """All training images of the classes that arrive later. Every trial draws its shots from them."""

    images: Images  # uint8 [n, 3, height, width]
    labels: Tensor  # int64 [n]
    items: Sequence[int] | Sequence[str]  # the images' names
    base_checksum: str  # of the base session's items, the same in every trial


@dataclass(frozen=True)
class Benchmark:
    name: str
    class_names: tuple[str, ...]  # class_names[label]
    sessions: tuple[Session, ...]  # sessions[0] is the base
    test_images: Images  # uint8 [n, 3, height, width], of all classes
    test_labels: Tensor  # int64 [n]
    mean: Colour  # of the base session's pixels in [0, 1], for normalisation
    std: Colour
    split_checksum: str  # which item went where
    pool: Pool  # stays where it was loaded, whatever device the sessions are on
    warnings: tuple[str, ...] = ()
    title: str = ""  # used in reports, where the name says little

    def seen(self, i: int) -> int:
        """How many classes have arrived by the end of session i; their labels are 0 .. seen(i) - 1."""
        return sum(len(session.classes) for session in self.sessions[: i + 1])

    def test(self, i: int) -> tuple[Images, Tensor]:
        """Test images and labels of all classes seen up to session i."""
        here = self.test_labels < self.seen(i)
        return subset(self.test_images, here), self.test_labels[here]

    def to(self, device: torch.device | str) -> Benchmark:
        return replace(
            self,
            sessions=tuple(session.to(device) for session in self.sessions),
            test_images=self.test_images.to(device),
            test_labels=self.test_labels.to(device),
        )

    def redrawn(self, trial: int) -> Benchmark:
        """The same with the shots of another trial. Nothing is read again, and only the shots move to the device."""
        base, *later = self.sessions
        sizes = [(session.classes, len(session.labels) // len(session.classes)) for session in later]
        sessions, split_checksum = draw_sessions(self.pool, sizes, trial)
        moved = (session.to(self.test_labels.device) for session in sessions)
        return replace(self, sessions=(base, *moved), split_checksum=split_checksum)


def draw_shots(n: int, shot: int, seed: int = 1) -> list[int]:
    """Positions of a class's shots among its n training images.

    Seed 1 is the draw behind the field's published session lists: legacy NumPy, reseeded for every class. The
    paper's multiple trials shuffle with seeds 1 .. E and take the first K, which is the same rule.
    """
    return [int(i) for i in np.random.RandomState(seed).permutation(n)[:shot]]


def checksum(items: Iterable[object]) -> str:
    """First 16 hex digits of the SHA-256 of the items, one per line: the canonical form of a session list."""
    text = "".join(f"{item}\n" for item in items)
    return hashlib.sha256(file_name_bytes(text)).hexdigest()[:16]


def digest(images: bytes | memoryview, labels: Tensor) -> str:
    """SHA-256 of images, as images.contents gives them, and labels."""
    found = hashlib.sha256(images)
    found.update(labels.cpu().contiguous().numpy().data)
    return found.hexdigest()


def split(
    name: str,
    class_names: Sequence[str],
    train_images: Images,
    train_labels: Tensor,
    train_items: Sequence[int] | Sequence[str],
    test_images: Images,
    test_labels: Tensor,
    *,
    base_classes: int,
    ways: Sequence[int],
    shots: Sequence[int],
    trial: int = 1,
    warnings: Sequence[str] = (),
) -> Benchmark:
    """Cut a labelled dataset into a base session with all its images and few-shot sessions of ways[i] classes each.

    Labels must number the classes in order of arrival; train_items names every training image (its row or file name)
    and is what the split's checksum is computed from. Images are normalised by the base session's pixels: those of
    later classes and of the test set are not known yet when training starts.
    """
    needed = base_classes + sum(ways)
    if base_classes < 1 or needed > len(class_names):
        raise UserError(
            f"{name}: {base_classes} base classes and {len(ways)} sessions need {needed} classes, "
            f"but there are {len(class_names)}; lower base_classes, way or the number of sessions"
        )
    if len(ways) != len(shots):
        raise UserError(f"{name}: {len(ways)} ways but {len(shots)} shots; give one of each per session")
    firsts = [base_classes + sum(ways[:i]) for i in range(len(ways))]
    sizes = [(tuple(range(first, first + way)), shot) for first, way, shot in zip(firsts, ways, shots, strict=True)]
    counts = torch.bincount(train_labels, minlength=needed)
    for classes, shot in [(tuple(range(base_classes)), 1), *sizes]:
        for label in classes:
            if counts[label] < shot:
                raise CannotLearn(
                    f"{name}: class {class_names[label]!r} has {counts[label]} training images, fewer than its {shot} "
                    "shots; add images, lower shot, or leave the class out"
                )
    of_base = torch.nonzero(train_labels < base_classes).flatten()
    of_later = torch.nonzero((train_labels >= base_classes) & (train_labels < needed)).flatten()
    base = Session(tuple(range(base_classes)), subset(train_images, of_base), train_labels[of_base])
    pool = Pool(
        subset(train_images, of_later),
        train_labels[of_later],
        [train_items[j] for j in of_later.tolist()],
        checksum(sorted(train_items[j] for j in of_base.tolist())),
    )
    sessions, split_checksum = draw_sessions(pool, sizes, trial)
    mean, std = mean_and_deviation(base.images)
    used = test_labels < needed
    return Benchmark(
        name=name,
        class_names=tuple(class_names[:needed]),
        sessions=(base, *sessions),
        test_images=subset(test_images, used),
        test_labels=test_labels[used],
        mean=mean,
        std=std,
        split_checksum=split_checksum,
        pool=pool,
        warnings=tuple(warnings),
    )


def draw_sessions(pool: Pool, sizes: Sequence[tuple[Classes, int]], trial: int) -> tuple[list[Session], str]:
    """Few-shot sessions of the given classes and shots, and the checksum of the whole split."""
    if not 0 <= trial < 2**32:
        raise UserError(f"trial={trial} cannot seed the shots; it must be a number from 0 to {2**32 - 1}")
    sessions: list[Session] = []
    checksums = [pool.base_checksum]
    for classes, shot in sizes:
        drawn: list[int] = []
        for label in classes:
            here = torch.nonzero(pool.labels == label).flatten().tolist()
            drawn += [here[j] for j in draw_shots(len(here), shot, trial)]
        index = torch.tensor(drawn)
        sessions.append(Session(classes, subset(pool.images, index), pool.labels[index]))
        checksums.append(checksum(sorted(pool.items[j] for j in drawn)))
    return sessions, checksum(checksums)


def validation_benchmark(benchmark: Benchmark, held_out_share: float = 0.2, trial: int = 1) -> Benchmark:
    """An inner benchmark of base classes alone, so that settings can be chosen without any test image."""
    if len(benchmark.sessions) < 2:
        raise UserError(f"{benchmark.name}: validation=classes needs at least one few-shot session to imitate")
    base, first, *_ = benchmark.sessions
    names = benchmark.class_names[: len(base.classes)]
    inner = inner_benchmark(base, first, f"{benchmark.name}-validation", names, held_out_share, trial)
    title = f"{benchmark.title}-validation" if benchmark.title else ""
    return replace(inner, warnings=benchmark.warnings, title=title)


def inner_benchmark(
    base: Session, later: Session, name: str, class_names: Sequence[str], held_out_share: float = 0.2, trial: int = 1
) -> Benchmark:
    """The last third of the base classes arrives in sessions of the later session's way and shot.

    60 base classes of 5-way 5-shot: 40 + 4 x 5. A third that is smaller than a session becomes one smaller session. The
    test set is the last fifth of every base class's training images, which are not trained on.
    """
    classes = len(base.classes)
    shot = len(later.labels) // len(later.classes)
    way = min(len(later.classes), classes // 3)
    if way < 1:
        raise CannotLearn(
            f"{name}: an inner benchmark holds out a third of the base classes, but there are only {classes}; "
            "three are needed"
        )
    rounds = classes // 3 // way
    held_out = torch.zeros(len(base.labels), dtype=torch.bool)
    for label in base.classes:
        here = torch.nonzero(base.labels.cpu() == label).flatten()
        held_out[here[len(here) - max(1, round(len(here) * held_out_share)) :]] = True
    rows = torch.nonzero(~held_out).flatten()
    return split(
        name,
        class_names,
        subset(base.images, rows),
        base.labels.cpu()[rows],
        rows.tolist(),
        subset(base.images, held_out),
        base.labels.cpu()[held_out],
        base_classes=classes - rounds * way,
        ways=[way] * rounds,
        shots=[shot] * rounds,
        trial=trial,
    )
