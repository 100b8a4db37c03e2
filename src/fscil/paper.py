"""The published numbers that ours are compared with, from paper.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

BENCHMARKS = ("cifar100", "cub200", "miniimagenet")
AUGMENTATIONS = ("autoaug", "basic")


@dataclass(frozen=True)
class Row:
    """One line of a published table: accuracy after every session and PD as printed."""

    benchmark: str
    method: str
    augmentation: str
    accuracy: tuple[float, ...]
    pd: float
    base: float | None = None
    new: float | None = None
    harmonic_mean: float | None = None


def row(benchmark: str, method: str, augmentation: str = "autoaug") -> list[float] | None:
    """Published accuracy per session, or None where the paper has no such line."""
    found = find(benchmark, method, augmentation)
    return list(found.accuracy) if found else None


def find(
    benchmark: str, method: str, augmentation: str = "autoaug", classes_per_session: Sequence[int] | None = None
) -> Row | None:
    """The line to compare a run with: that of the method a preset is named after (limit-paper: limit's).

    Methods published with one augmentation only have one line, whatever ours was trained with. A stream other than the
    published one (another way, fewer sessions) has no line: pass classes_per_session to check this.
    """
    rows = [r for r in published(benchmark) if method == r.method or method.startswith(f"{r.method}-")]
    if not rows or (classes_per_session is not None and list(classes_per_session) != stream(benchmark)):
        return None
    return next((r for r in rows if r.augmentation == augmentation), rows[0])


def published(benchmark: str) -> list[Row]:
    """All lines of a benchmark's table, those with AutoAugment first."""
    if benchmark not in BENCHMARKS:
        return []
    return [
        Row(benchmark, method, augmentation, tuple(values.pop("accuracy")), **values)
        for augmentation in AUGMENTATIONS
        for method, values in load()[benchmark][augmentation].items()
    ]


def stream(benchmark: str) -> list[int]:
    """Classes per session of the published stream."""
    return list(load()[benchmark]["classes_per_session"])


def ablation() -> dict[str, list[float]]:
    """CIFAR100, each part added to the one before: finetune, prototype, calibration, meta-1, meta-c (LIMIT itself)."""
    return {name: list(values["accuracy"]) for name, values in load()["ablation"].items()}


def task_sampling() -> dict[str, dict[str, dict[str, float]]]:
    """[benchmark][method][fit | pil]: last accuracy with LIMIT's fake tasks and with CEC's."""
    return dict(load()["task-sampling"])


def augmentation() -> dict[str, dict[str, dict[str, float]]]:
    """[benchmark][method][basic | autoaug]: last accuracy with either augmentation."""
    return dict(load()["augmentation"])


def load() -> dict[str, Any]:
    """paper.toml, parsed on every call, so that callers may modify what they get."""
    return tomllib.loads(text())


@cache
def text() -> str:
    return files("fscil").joinpath("paper.toml").read_text(encoding="utf-8")
