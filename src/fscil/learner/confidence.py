"""Confidence: a temperature fitted by leave-one-out, and how far probabilities then are from the truth."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fscil.learner.leave_one_out import Held, in_turn

LEAST_PHOTOS, LEAST_CLASSES = 20, 2  # fewer cannot show how often answers are right
BINS = 10
LOWEST, HIGHEST = -7.0, 7.0  # of log2 of the temperature
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Confidence:
    """How probabilities were calibrated; None where there was too little to measure, and `reason` says what."""

    temperature: float | None  # logits are divided by it
    log_loss: float | None
    photos: int  # that were left out, one at a time
    error_base: float | None  # expected calibration errors, of photos of base classes and of taught ones
    error_taught: float | None
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_confidence(held: Held) -> Confidence:
    """Photos whose class stays without them, among classes that may be answered."""
    use = held.known & held.columns[held.own]
    n, classes = int(use.sum()), len(np.unique(held.own[use]))
    if n < LEAST_PHOTOS or classes < LEAST_CLASSES:
        reason = (
            f"{in_turn(n, classes)}; confidence is measured from {LEAST_PHOTOS} photos of {LEAST_CLASSES} classes on, "
            "each with two photos or more"
        )
        return Confidence(None, None, n, None, None, reason)
    logits, own, base = held.logits[use][:, held.columns], _renumbered(held.own[use], held.columns), held.base[use]
    temperature = fit_temperature(logits, own)
    probabilities = softmax(logits / temperature)
    loss = log_loss(logits / temperature, own)
    of_base, of_taught = (_error_of(probabilities, own, which) for which in (base, ~base))
    return Confidence(temperature, loss, n, of_base, of_taught, "")


def _renumbered(own: NDArray[np.intp], columns: NDArray[np.bool_]) -> NDArray[np.intp]:
    return (np.cumsum(columns) - 1)[own]


def _error_of(probabilities: NDArray[np.float64], own: NDArray[np.intp], which: NDArray[np.bool_]) -> float | None:
    if which.sum() < LEAST_PHOTOS:
        return None
    return calibration_error(probabilities[which], own[which])


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, classes], over classes"""
    raised = np.exp(logits - logits.max(1, keepdims=True))
    found: NDArray[np.float64] = raised / raised.sum(1, keepdims=True)
    return found


def log_loss(logits: NDArray[np.float64], own: NDArray[np.intp]) -> float:
    logits = logits - logits.max(1, keepdims=True)
    return float((np.log(np.exp(logits).sum(1)) - logits[np.arange(len(own)), own]).mean())


def fit_temperature(logits: NDArray[np.float64], own: NDArray[np.intp]) -> float:
    """The temperature with the least log-loss, to 1 %: golden-section search, since the loss has a single valley.

    If all n photos are recognised, the least loss is that of certainty. By Laplace's rule of succession the next one
    is recognised with (n + 1) / (n + 2), so then a share of 1 / (n + 2) of every photo counts as its best other class.
    SciPy has such a search, too, but takes longer to import than this takes.
    """
    below = (logits - logits.max(1, keepdims=True)).astype(np.float32)  # four times as fast, and near enough
    here = np.arange(len(own))
    targets = below[here, own]
    if not targets.any():  # all are recognised
        others, doubt = below.copy(), np.float32(1 / (len(own) + 2))
        others[here, own] = -np.inf
        targets = doubt * others.max(1)

    def loss(power: float) -> float:
        share = np.float32(2**-power)
        return float((np.log(np.exp(below * share).sum(1)) - targets * share).mean(dtype=np.float64))

    low, high = LOWEST, HIGHEST
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    loss_left, loss_right = loss(left), loss(right)
    while high - low > 0.015:
        if loss_left < loss_right:
            high, right, loss_right = right, left, loss_left
            left = high - GOLDEN * (high - low)
            loss_left = loss(left)
        else:
            low, left, loss_left = left, right, loss_right
            right = low + GOLDEN * (high - low)
            loss_right = loss(right)
    return float(2 ** ((low + high) / 2))


def calibration_error(probabilities: NDArray[np.float64], own: NDArray[np.intp]) -> float:
    """Expected calibration error: the mean gap between confidence and accuracy, over bins of equal width."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == own
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs(confidence[bins == b].sum() - right[bins == b].sum()) for b in range(BINS)]
    return float(sum(gaps) / len(own))
