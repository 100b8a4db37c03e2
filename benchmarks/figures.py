"""A figure: one ratio, and the two measurements it is made of."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Figure:
    name: str
    ratio: float
    meaning: str  # of the ratio: "times faster", "times the time", "times the memory"
    measured: dict[str, float]  # what it is made of; names end in their unit


def seconds(work: Callable[[], object], repeat: int = 5) -> float:
    """The shortest of several measurements after a warm-up: noise only ever adds time."""
    work()
    best = float("inf")
    for _ in range(repeat):
        wait()
        started = time.perf_counter()
        work()
        wait()
        best = min(best, time.perf_counter() - started)
    return best


def wait() -> None:
    """Wait until the GPU, if there is one, has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def faster(name: str, ours: float, other: float, unit: str = "ms", scale: float = 1e3) -> Figure:
    """How many times faster ours is; both in seconds."""
    return Figure(name, other / ours, "times faster", {f"ours, {unit}": ours * scale, f"other, {unit}": other * scale})
