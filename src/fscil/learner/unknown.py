"""Unknown: photos of no class that was taught. Classes that were stand in turn for those that were not.

A photo's score is its best logit less a share of the mean of the next ten. Far from everything, the best logit is low;
between many classes, it is hardly higher than the next. How much the latter counts depends on the encoder and on how
alike the classes are, so the share is chosen: the one by which photos that were left out of their class most often
score higher than photos whose whole class was left out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fscil.learner.leave_one_out import Held, in_turn

KEPT = 0.95  # of photos of known classes that are not to be called unknown
SURE = 0.7  # how likely it is to be at least that share; few photos may by chance be like their class
RIVALS = 10
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of which the first wins ties
LEAST_PHOTOS, LEAST_CLASSES = 20, 3


@dataclass(frozen=True)
class Unknown:
    """A photo whose score is below the threshold is unknown; None: too little was taught to choose one."""

    threshold: float | None
    share: float | None  # of the next logits' mean, which a score is lowered by
    kept: float | None  # share of photos, each left out of its class, that stay above the threshold
    let_through: float | None  # share of photos whose whole class was left out that do, too
    known_photos: int
    unknown_photos: int
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def scores(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of photos' logits [n, classes], those of classes that may not be answered being -inf: [n]"""
        best, following = best_and_following(logits)
        return best - (self.share or 0.0) * following


def best_and_following(logits: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The best of [n, classes], and the mean of the next ten, or of as many as there are: [n] each; 0 of none."""
    n, classes = logits.shape
    if not classes:
        return np.full(n, -np.inf), np.zeros(n)
    first = max(0, classes - RIVALS - 1)
    highest = np.sort(np.partition(logits, first, axis=1)[:, first:], axis=1)
    best, others = highest[:, -1], highest[:, :-1]
    there = np.isfinite(others)
    return best, np.where(there, others, 0).sum(1) / np.maximum(1, there.sum(1))


def measure_unknown(held: Held) -> Unknown:
    visible = held.columns[held.own]
    known, following = best_and_following(held.logits[held.known & visible])
    strangers, following_strangers = best_and_following(held.strangers[visible])
    others = np.isfinite(strangers)
    strangers, following_strangers = strangers[others], following_strangers[others]
    classes = len(np.unique(held.own[held.known & visible]))
    if len(known) < LEAST_PHOTOS or classes < LEAST_CLASSES:
        reason = (
            f"{in_turn(len(known), classes)}; a threshold for unknown is chosen from {LEAST_PHOTOS} photos of "
            f"{LEAST_CLASSES} classes on, each with two photos or more"
        )
        return Unknown(None, None, None, None, len(known), len(strangers), reason)
    share = max(SHARES, key=lambda s: told_apart(known - s * following, strangers - s * following_strangers))
    known, strangers = known - share * following, strangers - share * following_strangers
    threshold = choose_threshold(known)
    return Unknown(
        threshold, share, float((known >= threshold).mean()), float((strangers >= threshold).mean()), len(known),
        len(strangers), "",
    )  # fmt: skip


def told_apart(known: NDArray[np.float64], strangers: NDArray[np.float64]) -> float:
    """How often a known photo scores higher than a stranger: the area under the ROC curve."""
    ordered = np.sort(strangers)
    lower, not_higher = (np.searchsorted(ordered, known, side) for side in ("left", "right"))
    return float((lower + not_higher).mean() / 2 / max(1, len(ordered)))


def choose_threshold(known: NDArray[np.float64]) -> float:
    """The highest of the scores that keeps KEPT of further photos like these, with a probability of SURE.

    Of n photos the number that belong to the lowest 5 % of all is binomial. The k-th lowest of them is low enough if k
    of them do; with too few photos for that, the lowest is taken.
    """
    n, k = len(known), 0
    fewer, exactly = 0.0, KEPT**n  # the probabilities that less than k of them do, and that k do
    while 1 - (fewer + exactly) >= SURE:
        fewer += exactly
        exactly *= (n - k) / (k + 1) * (1 - KEPT) / KEPT
        k += 1
    return float(np.sort(known)[max(0, k - 1)])
