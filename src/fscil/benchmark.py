"""Benchmark: a stream of sessions plus a test set (the paper's D^0 ... D^B)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fscil.errors import UserError


@dataclass(frozen=True)
class Session:
    """One step of the stream. Labels count classes in their order of arrival, over all sessions."""

    classes: tuple[int, ...]
    images: Tensor  # uint8 [n, 3, height, width]
    labels: Tensor  # int64 [n]


@dataclass(frozen=True)
class Benchmark:
    name: str
    class_names: tuple[str, ...]  # class_names[label]
    sessions: tuple[Session, ...]  # sessions[0] is the base
    test_images: Tensor  # uint8 [n, 3, height, width], of all classes
    test_labels: Tensor  # int64 [n]
    mean: tuple[float, float, float]  # of the pixels in [0, 1], for normalisation
    std: tuple[float, float, float]
    split_checksum: str  # which item went where
    data_checksum: str  # what the items are
    warnings: tuple[str, ...] = ()

    def seen(self, i: int) -> int:
        """How many classes have arrived by the end of session i; their labels are 0 .. seen(i) - 1."""
        return sum(len(session.classes) for session in self.sessions[: i + 1])

    def test(self, i: int) -> tuple[Tensor, Tensor]:
        """Test images and labels of all classes seen up to session i."""
        here = self.test_labels < self.seen(i)
        return self.test_images[here], self.test_labels[here]

    def to(self, device: torch.device | str) -> Benchmark:
        sessions = tuple(replace(s, images=s.images.to(device), labels=s.labels.to(device)) for s in self.sessions)
        return replace(
            self, sessions=sessions, test_images=self.test_images.to(device), test_labels=self.test_labels.to(device)
        )


def draw_shots(n: int, shot: int, seed: int = 1) -> list[int]:
    """Positions of a class's shots among its n training images.

    Seed 1 is the draw behind the field's published session lists: legacy NumPy, seeded anew for every class. The
    paper's multiple trials shuffle with seeds 1 .. E and take the first K, which is the same rule.
    """
    return [int(i) for i in np.random.RandomState(seed).permutation(n)[:shot]]


def checksum(items: Iterable[object]) -> str:
    """First 16 hex digits of the SHA-256 of the items, one a line: the canonical form of a session list."""
    text = "".join(f"{item}\n" for item in items)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def split(
    name: str,
    class_names: Sequence[str],
    train_images: Tensor,
    train_labels: Tensor,
    train_items: Sequence[int] | Sequence[str],
    test_images: Tensor,
    test_labels: Tensor,
    *,
    base_classes: int,
    ways: Sequence[int],
    shots: Sequence[int],
    trial: int = 1,
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
    data_checksum: str,
    warnings: Sequence[str] = (),
) -> Benchmark:
    """Cut a labelled dataset into a base session with all its images and few-shot sessions of ways[i] classes each.

    Labels must count classes in order of arrival; train_items names every training image (its row or file name) and
    is what the split's checksum is made of.
    """
    needed = base_classes + sum(ways)
    if base_classes < 1 or needed > len(class_names):
        raise UserError(
            f"{name}: {base_classes} base classes and {len(ways)} sessions need {needed} classes, "
            f"but there are {len(class_names)}; lower base_classes, way or the number of sessions"
        )
    if not 0 <= trial < 2**32:
        raise UserError(f"{name}: trial={trial} cannot seed the shots; it must be a number from 0 to {2**32 - 1}")
    if len(ways) != len(shots):
        raise UserError(f"{name}: {len(ways)} ways but {len(shots)} shots; give one of each per session")
    sessions: list[Session] = []
    checksums: list[str] = []
    first = 0
    for i, (way, shot) in enumerate(zip([base_classes, *ways], [None, *shots], strict=True)):
        classes = tuple(range(first, first + way))
        positions: list[int] = []
        for label in classes:
            here = torch.nonzero(train_labels == label).flatten().tolist()
            if len(here) < (shot or 1):
                raise UserError(
                    f"{name}: class {class_names[label]!r} has {len(here)} training images, fewer than its {shot or 1} "
                    "shots; add images, lower shot, or leave the class out"
                )
            positions += here if i == 0 else [here[j] for j in draw_shots(len(here), int(shot or 0), trial)]
        index = torch.tensor(sorted(positions) if i == 0 else positions)
        sessions.append(Session(classes, train_images[index], train_labels[index]))
        checksums.append(checksum(sorted(train_items[j] for j in positions)))
        first += way
    used = test_labels < needed
    return Benchmark(
        name=name,
        class_names=tuple(class_names[:needed]),
        sessions=tuple(sessions),
        test_images=test_images[used],
        test_labels=test_labels[used],
        mean=mean,
        std=std,
        split_checksum=checksum(checksums),
        data_checksum=data_checksum,
        warnings=tuple(warnings),
    )


def validation_benchmark(benchmark: Benchmark, held_out_share: float = 0.2, trial: int = 1) -> Benchmark:
    """An inner benchmark of base classes alone, so that settings can be chosen without any test image.

    The last third of the base classes arrives in sessions of the real way and shot (60 base classes of 5-way 5-shot:
    40 + 4 x 5); the test set is the last fifth of every base class's training images, which are trained on no more.
    """
    base = benchmark.sessions[0]
    if len(benchmark.sessions) < 2:
        raise UserError(f"{benchmark.name}: validation=classes needs at least one few-shot session to imitate")
    way = len(benchmark.sessions[1].classes)
    shot = len(benchmark.sessions[1].labels) // way
    rounds = len(base.classes) // 3 // way
    if rounds < 1:
        raise UserError(
            f"{benchmark.name}: validation=classes holds out a third of the {len(base.classes)} base classes, "
            f"which is less than one session of {way}"
        )
    held_out = torch.zeros(len(base.labels), dtype=torch.bool)
    for label in base.classes:
        here = torch.nonzero(base.labels.cpu() == label).flatten()
        held_out[here[len(here) - max(1, round(len(here) * held_out_share)) :]] = True
    rows = torch.nonzero(~held_out).flatten()
    return split(
        f"{benchmark.name}-validation",
        benchmark.class_names[: len(base.classes)],
        base.images[rows],
        base.labels[rows],
        rows.tolist(),
        base.images[held_out],
        base.labels[held_out],
        base_classes=len(base.classes) - rounds * way,
        ways=[way] * rounds,
        shots=[shot] * rounds,
        trial=trial,
        mean=benchmark.mean,
        std=benchmark.std,
        data_checksum=benchmark.data_checksum,
        warnings=benchmark.warnings,
    )
