"""Learning-rate schedules: functions from a step to the factor by which every learning rate is multiplied."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int], float]


def cosine(steps: int, warmup: int = 0) -> Schedule:
    """Linear warm-up, then decay to zero along half a cosine."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))

    return factor


def decay_at(milestones: list[int], by: float = 0.1, warmup: int = 0) -> Schedule:
    """Linear warm-up, if any; multiplied by `by` at every milestone."""

    def factor(step: int) -> float:
        decayed = by ** sum(step >= milestone for milestone in milestones)
        return decayed * (step + 1) / warmup if step < warmup else decayed

    return factor


def decay_every(period: int, by: float = 0.5) -> Schedule:
    """Multiplied by `by` every `period` steps; never, if the period is 0."""
    return lambda step: by ** (step // period) if period else 1.0
