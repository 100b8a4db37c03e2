"""Judging: how well a model knows its classes, and learns further ones, on photos that it was not trained on.

A third of the classes plays the part of classes that are taught later, from a few photos each. This is the inner
benchmark by which runs choose their settings, with several draws of classes and of photos.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fscil import margins
from fscil.learner.heads import Head, Learned, Photos, learn

SHOTS = 5  # photos of a class that plays a new one
DRAWS = 4  # of the shots, for every division of the classes
DIVISIONS = 5  # of the classes
LEAST_CLASSES = 6  # for a margin: with fewer, two classes or less would decide
LEAST_PHOTOS = 20  # held out, by which something can be chosen

Logits = Callable[[Photos, Photos], Tensor]  # (photos to judge, shots of new classes) -> [n, base + new classes]


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


def judge(held: Photos, trials: Sequence[tuple[Division, Sequence[Tensor]]], classes: int) -> Verdict:
    """trials: for divisions of the classes, logits of all held-out photos of every draw, in the division's order."""
    scores, known = [], np.zeros(len(held))
    base_counts = np.zeros(len(held))
    for division, draws in trials:
        number = torch.empty(classes, dtype=torch.long)
        number[list(division.base + division.new)] = torch.arange(len(division.base) + len(division.new))
        labels, base = number[held.labels].numpy(), len(division.base)
        for logits in draws:
            z = logits.double().numpy()
            of_base, of_new = z[:, :base], z[:, base:]
            known += (of_base.argmax(1) == labels) & (labels < base)
            base_counts += labels < base
            if of_new.shape[1]:
                best = of_base.argmax(1)[None], of_new.argmax(1)[None] + base
                sizes = (base, of_new.shape[1])
                scores.append(margins.Scores(labels, *best, of_base.max(1)[None], of_new.max(1)[None], sizes))
    known_shares = 100 * known / max(1, base_counts.sum())
    if not scores:
        return Verdict(float(known_shares.sum()), None, 0.0, known_shares)
    margin = (margins.choose_margin(scores) or 0.0) if classes >= LEAST_CLASSES else 0.0
    right = np.mean([margins.predictions_at(each, margin)[-1] == each.labels for each in scores], axis=0)
    taught_shares = 100 * right / len(held)
    shares = (known_shares + taught_shares) / 2
    return Verdict(float(known_shares.sum()), float(taught_shares.sum()), margin, shares)


def draws_of(logits: Logits, held: Photos, kept: Photos, division: Division) -> list[Tensor]:
    """Logits of the held-out photos with every draw of the shots."""
    return [logits(held, draw_shots(kept, division.new, draw)) for draw in range(1, DRAWS + 1)]


def logits_of(learned: Learned, new: int) -> Logits:
    return lambda held, shots: learned.logits(held, learned.taught(shots, new))


def judge_heads(heads: Sequence[Head], kept: Photos, held: Photos, classes: int) -> dict[Head, Verdict]:
    """Heads on a fixed encoder, over several divisions; with fewer than three classes, all of them are base classes."""
    several = divisions(classes) or [Division(tuple(range(classes)), ())]
    trials: dict[Head, list[tuple[Division, Sequence[Tensor]]]] = {head: [] for head in heads}
    for division in several:
        learned = learn(heads, kept.of(division.base), len(division.base))
        for head, each in zip(heads, learned, strict=True):
            if division.new:
                draws = draws_of(logits_of(each, len(division.new)), held, kept, division)
            else:
                draws = [each.logits(held)]
            trials[head].append((division, draws))
    return {head: judge(held, found, classes) for head, found in trials.items()}


def best_of(verdicts: dict[Head, Verdict]) -> Head:
    """The highest score; among equals the first, so the simplest comes first."""
    return max(verdicts, key=lambda head: verdicts[head].score)
