"""Judging: how well a model knows its classes, and learns further ones, on photos that it was not trained on.

A third of the classes plays the part of classes that are taught later, from a few photos each. This is the inner
benchmark by which runs choose their settings, with several draws of classes and of photos.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fscil import margins
from fscil.errors import CannotLearn
from fscil.learner.heads import Head, Learned, Photos, learn

SHOTS = 5  # photos of a class that plays a new one
DRAWS = 4  # of the shots, for every division of the classes
DIVISIONS = 5  # of the classes
LEAST_CLASSES = 6  # for a margin: with fewer, two classes or less would decide
LEAST_PHOTOS = 20  # held out, by which something can be chosen
MOST_JUDGED = 2000


@dataclass(frozen=True)
class Division:
    """Classes that are learned from many photos, and classes that are taught."""

    base: tuple[int, ...]
    new: tuple[int, ...]


def divisions(classes: int, count: int = DIVISIONS, seed: int = 1) -> list[Division]:
    """Each holds out a third of the classes; none with fewer than three, and no more than there are of them."""
    if classes < 3:
        return []
    found = []
    for i in range(count):
        order = np.random.RandomState(seed + i).permutation(classes).tolist()
        new = classes // 3
        found.append(Division(tuple(sorted(order[new:])), tuple(sorted(order[:new]))))
    return list(dict.fromkeys(found))


def draw_shots(photos: Photos, new: Sequence[int], draw: int) -> Photos:
    """A few photos of each new class, which are numbered from 0."""
    generator = np.random.RandomState(draw)
    chosen = []
    for label in new:
        here = torch.nonzero(photos.labels == label).flatten()
        chosen.append(here[torch.from_numpy(generator.permutation(len(here))[:SHOTS])])
    return photos.where(torch.cat(chosen)).of(new)


@dataclass(frozen=True)
class Verdict:
    """In percent. `shares`: what every judged photo adds to the score, so that two verdicts can be compared."""

    known: float  # of photos of base classes, among those alone
    taught: float | None  # of all photos, among base and taught classes; None: there were too few classes
    margin: float
    shares: NDArray[np.float64]  # [judged photos]

    @property
    def score(self) -> float:
        """The mean of the two."""
        return self.known if self.taught is None else (self.known + self.taught) / 2

    def gain_over(self, other: Verdict) -> tuple[float, float]:
        """The difference in score, and its standard error over the photos."""
        n, difference = len(self.shares), self.shares - other.shares
        return float(difference.sum()), float(difference.std() * math.sqrt(n)) if n > 1 else 0.0


def judge(trials: Sequence[margins.Scores], classes: int) -> Verdict:
    """trials: the best classes of the same photos, for divisions of the classes and draws of the shots."""
    of_base = np.stack([trial.labels < trial.classes_per_session[0] for trial in trials])
    known = np.stack([trial.best_base_class[-1] == trial.labels for trial in trials]) & of_base
    known_shares = 100 * known.sum(0) / max(1, of_base.sum())
    if trials[0].classes_per_session[1] == 0:
        return Verdict(float(known_shares.sum()), None, 0.0, known_shares)
    margin = (margins.choose_margin(trials) or 0.0) if classes >= LEAST_CLASSES else 0.0
    right = np.mean([margins.predictions_at(trial, margin)[-1] == trial.labels for trial in trials], axis=0)
    taught_shares = 100 * right / len(right)
    shares = (known_shares + taught_shares) / 2
    return Verdict(float(known_shares.sum()), float(taught_shares.sum()), margin, shares)


def tried(learned: Learned, kept: Photos, held: Photos, division: Division) -> list[margins.Scores]:
    """The held-out photos' best classes with every draw of the shots; labels are in the division's order."""
    number = torch.empty(1 + max(division.base + division.new), dtype=torch.long)
    number[list(division.base + division.new)] = torch.arange(len(division.base) + len(division.new))
    labels, base, new = number[held.labels].numpy(), len(division.base), len(division.new)
    found = []
    for draw in range(1, DRAWS + 1) if new else (0,):
        more = learned.taught(draw_shots(kept, division.new, draw), new) if new else None
        z = learned.logits(held, more).double().numpy()
        best_new, new_score = np.full(len(z), -1), np.full(len(z), -np.inf)
        if new:
            best_new, new_score = z[:, base:].argmax(1) + base, z[:, base:].max(1)
        best = z[:, :base].argmax(1)[None], best_new[None], z[:, :base].max(1)[None], new_score[None]
        found.append(margins.Scores(labels, *best, (base, new)))
    return found


def judge_heads(heads: Sequence[Head], kept: Photos, held: Photos, classes: int) -> dict[Head, Verdict]:
    """Heads on a fixed encoder, over several divisions; with fewer than three classes, all of them are base classes.

    Heads that cannot be learned from these photos are left out.
    """
    several = divisions(classes) or [Division(tuple(range(classes)), ())]
    trials: dict[Head, list[margins.Scores]] = {head: [] for head in heads}
    for division in several:
        try:
            learned = learn(list(trials), kept.of(division.base), len(division.base))
        except (CannotLearn, torch.linalg.LinAlgError):  # type: ignore[attr-defined]  # nothing varies within classes
            trials = {head: found for head, found in trials.items() if not head.whiten}
            learned = learn(list(trials), kept.of(division.base), len(division.base))
        for found, each in zip(trials.values(), learned, strict=True):
            found += tried(each, kept, held, division)
    return {head: judge(found, classes) for head, found in trials.items()}


def evenly(photos: Photos) -> Photos:
    """Some of the photos where there are many."""
    if len(photos) <= MOST_JUDGED:
        return photos
    return photos.where(torch.arange(MOST_JUDGED) * len(photos) // MOST_JUDGED)


def best_of(verdicts: dict[Head, Verdict]) -> Head:
    """The highest score; among equals the first, so the simplest comes first."""
    return max(verdicts, key=lambda head: verdicts[head].score)
