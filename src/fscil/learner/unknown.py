"""Unknown: photos of no class that was taught. Classes that were stand in turn for those that were not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fscil.learner.leave_one_out import Held

KEPT = 0.95  # of photos of known classes that are not to be called unknown
LEAST_PHOTOS, LEAST_CLASSES = 20, 3


@dataclass(frozen=True)
class Unknown:
    """A photo whose best logit is below the threshold is unknown; None: too little was taught to choose one."""

    threshold: float | None
    kept: float | None  # share of photos, each left out of its class, that stay above the threshold
    let_through: float | None  # share of photos whose whole class was left out that do, too
    known_photos: int
    unknown_photos: int
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_unknown(held: Held) -> Unknown:
    visible = held.columns[held.own]
    known = held.logits[held.known & visible].max(1, initial=-np.inf)
    strangers = held.strangers[visible & np.isfinite(held.strangers)]
    classes = len(np.unique(held.own[held.known & visible]))
    if len(known) < LEAST_PHOTOS or classes < LEAST_CLASSES:
        reason = (
            f"{len(known)} photos of {classes} classes can be left out in turn; a threshold for unknown is chosen from "
            f"{LEAST_PHOTOS} photos of {LEAST_CLASSES} classes on, each with two photos or more"
        )
        return Unknown(None, None, None, len(known), len(strangers), reason)
    threshold = choose_threshold(known)
    return Unknown(
        threshold, float((known >= threshold).mean()), float((strangers >= threshold).mean()), len(known),
        len(strangers), "",
    )  # fmt: skip


def choose_threshold(known: NDArray[np.float64]) -> float:
    """The highest that keeps KEPT of the scores."""
    return float(np.sort(known)[int((1 - KEPT) * len(known) + 1e-9)])
