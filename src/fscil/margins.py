"""What a run is worth whatever its margin: pure functions of the best base and the best new score of every image.

A margin m is subtracted from the logits of base classes. An image is given its best base class if the score of that,
less m, is at least the score of its best new class, and its best new class otherwise: base classes come first, so they
win ties, as in argmax. As m grows, images move from base to new classes one after another. Accuracy on base classes
falls from its value among base classes alone to 0, while accuracy on new classes rises from 0 to its value among new
classes alone. The area under this curve compares methods that no margin, or a different one, was chosen for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from fscil import metrics
from fscil.errors import UserError
from fscil.files import read_regular
from fscil.metrics import Headline, Ints

Floats = NDArray[np.float64]

CURVE_POINTS = 101  # of a curve in a result, for pictures
STEP = 0.05  # between the margins that choose_margin tries
LARGEST_FILE = 2**33  # bytes of predictions
COST = 0.75  # points of last-session accuracy that choose_margin may give up for a higher harmonic mean


class Measures(TypedDict):
    """What a result says about margins, in percent; None without test images of new classes."""

    margin: float
    area: float | None  # under the curve of new over base accuracy, both as shares of 1
    base_among_base: float | None  # the curve's ends: accuracy among base classes alone ...
    new_among_new: float | None  # ... and among new classes alone
    best_harmonic_mean: float | None  # on the curve; this and the next one at a margin of their own
    best_last: float | None
    base_to_new: float | None  # base test images that were given a new class, at the run's margin
    new_to_base: float | None
    margin_zero: Headline
    curve: list[list[float]]  # margin, base and new accuracy


@dataclass(frozen=True)
class Scores:
    """The best base class and the best new class of every test image after every session, without the margin.

    All but labels [n_test] are [sessions, n_test]. A class is -1 and its score -inf where the image's class had not
    arrived yet, or where there was no new class.
    """

    labels: Ints
    best_base_class: Ints
    best_new_class: Ints
    best_base_score: Floats
    best_new_score: Floats
    classes_per_session: tuple[int, ...]


def scores_from(
    labels: ArrayLike,
    best_base_class: ArrayLike,
    best_new_class: ArrayLike,
    best_base_score: ArrayLike,
    best_new_score: ArrayLike,
    classes_per_session: Sequence[int],
) -> Scores:
    """Scores from anything that NumPy can convert, after checking that they are consistent."""
    y, base_class, new_class = (np.asarray(each, dtype=np.int64) for each in (labels, best_base_class, best_new_class))
    base_score, new_score = (np.asarray(each, dtype=np.float64) for each in (best_base_score, best_new_score))
    metrics.checked(y, base_class, classes_per_session)
    if any(each.shape != base_class.shape for each in (new_class, base_score, new_score)):
        raise UserError(f"best classes and scores must all be {list(base_class.shape)}, [sessions, test images]")
    base = classes_per_session[0]
    for i, seen in enumerate(np.cumsum(classes_per_session)):
        judged = y < seen
        check_best(base_class[i], base_score[i], judged, 0, base, i)
        check_best(new_class[i], new_score[i], judged & (i > 0), base, int(seen), i)
    return Scores(y, base_class, new_class, base_score, new_score, tuple(classes_per_session))


def check_best(best: Ints, score: Floats, present: NDArray[np.bool_], first: int, end: int, session: int) -> None:
    """Classes first .. end - 1 and finite scores where present, -1 and -inf elsewhere."""
    if not np.isfinite(score[present]).all():
        raise UserError(
            f"after session {session} some scores of test images are not finite numbers: training has diverged; lower "
            "the learning rate"
        )
    if ((best[present] < first) | (best[present] >= end)).any():
        raise UserError(f"best classes of session {session} must lie in {first} .. {end - 1}")
    if (best[~present] != -1).any() or (score[~present] != -np.inf).any():
        raise UserError(f"best classes of session {session} must be -1, and their scores -inf, where there are none")


def read_scores(folder: Path, classes_per_session: Sequence[int]) -> Scores:
    """The scores that a run left in its folder."""
    path = Path(folder) / "predictions.safetensors"
    try:
        kept = load(read_regular(path, LARGEST_FILE))
        return scores_from(
            kept["labels"], kept["best_base_class"], kept["best_new_class"], kept["best_base_score"],
            kept["best_new_score"], classes_per_session,
        )  # fmt: skip
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"{path} has no scores of base and new classes ({error}); run it again") from error


def predictions_at(scores: Scores, margin: float) -> Ints:
    """The classes [sessions, n_test] that the images are given with this margin."""
    to_base = scores.best_base_score - margin >= scores.best_new_score
    return np.where(to_base, scores.best_base_class, scores.best_new_class)


def headline_at(scores: Scores, margin: float) -> Headline:
    return metrics.headline(scores.labels, predictions_at(scores, margin), scores.classes_per_session)


def measures(scores: Scores, margin: float) -> Measures:
    """All that a result says about margins; `margin` is the run's own."""
    margin_zero, curve = headline_at(scores, 0.0), margin_curve(scores)
    if curve is None:
        return Measures(
            margin=margin, area=None, base_among_base=None, new_among_new=None, best_harmonic_mean=None, best_last=None,
            base_to_new=None, new_to_base=None, margin_zero=margin_zero, curve=[],
        )  # fmt: skip
    base_to_new, new_to_base = wrong_side(scores, margin)
    return Measures(
        margin=margin,
        area=curve.area,
        base_among_base=float(curve.base[0]),
        new_among_new=float(curve.new[-1]),
        best_harmonic_mean=float(curve.harmonic_mean.max()),
        best_last=float(curve.last.max()),
        base_to_new=base_to_new,
        new_to_base=new_to_base,
        margin_zero=margin_zero,
        curve=points(curve),
    )


@dataclass(frozen=True)
class Curve:
    """Base and new accuracy at the last session for every margin that makes a difference, from low to high.

    margins [points]: at margins[i], and above margins[i - 1], base_right[i] and new_right[i] images are right.
    """

    margins: Floats
    base_right: Ints
    new_right: Ints
    base_images: int
    new_images: int

    @property
    def base(self) -> Floats:
        return 100 * self.base_right / self.base_images

    @property
    def new(self) -> Floats:
        return 100 * self.new_right / self.new_images

    @property
    def last(self) -> Floats:
        return 100 * (self.base_right + self.new_right) / (self.base_images + self.new_images)

    @property
    def harmonic_mean(self) -> Floats:
        total = self.base + self.new
        return 2 * self.base * self.new / np.where(total > 0, total, 1)

    @property
    def area(self) -> float:
        """In percent. Between two points the curve is a straight line: a step, or ties between base and new images."""
        width, height = -np.diff(self.base_right), self.new_right[1:] + self.new_right[:-1]
        return 50 * float((width * height).sum()) / (self.base_images * self.new_images)

    def at(self, margins: ArrayLike) -> Ints:
        """The indices of the points that belong to these margins."""
        return np.minimum(np.searchsorted(self.margins, np.asarray(margins)), len(self.margins) - 1)


def margin_curve(scores: Scores) -> Curve | None:
    """The exact curve, with a point for every difference between two scores; None without images of new classes."""
    base = scores.labels < scores.classes_per_session[0]
    if base.all() or not base.any():
        return None
    # an image goes to its best base class as long as the margin is at most this
    turns = scores.best_base_score[-1] - scores.best_new_score[-1]
    right_base = np.sort(turns[base & (scores.best_base_class[-1] == scores.labels)])
    right_new = np.sort(turns[~base & (scores.best_new_class[-1] == scores.labels)])
    margins = np.unique(turns)
    margins = np.append(margins, np.nextafter(margins[-1], np.inf))  # from here on every image is given a new class
    return Curve(
        margins,
        base_right=len(right_base) - np.searchsorted(right_base, margins, side="left"),
        new_right=np.searchsorted(right_new, margins, side="left"),
        base_images=int(base.sum()),
        new_images=int((~base).sum()),
    )


def area_of(logits: ArrayLike, labels: ArrayLike, base_classes: int) -> float:
    """The area under the curve of logits [images, classes] without a margin; there must be images of either kind."""
    z, y = np.asarray(logits, dtype=np.float64), np.asarray(labels)
    base, new = z[:, :base_classes], z[:, base_classes:]
    best_base, best_new = base.argmax(1)[None], new.argmax(1)[None] + base_classes
    sizes = (base_classes, new.shape[1])
    curve = margin_curve(Scores(y, best_base, best_new, base.max(1)[None], new.max(1)[None], sizes))
    if curve is None:
        raise ValueError("an area needs test images of base classes and of new ones")
    return curve.area


def wrong_side(scores: Scores, margin: float) -> tuple[float, float]:
    """Percent of base images that are given a new class after the last session, and of new images a base class."""
    base = scores.labels < scores.classes_per_session[0]
    to_new = predictions_at(scores, margin)[-1] >= scores.classes_per_session[0]
    return 100 * float(to_new[base].mean()), 100 * float((~to_new)[~base].mean())


def points(curve: Curve) -> list[list[float]]:
    """Up to 101 points of the curve, its ends included, about equally far from one another along it."""
    way = np.append(0.0, np.cumsum(-np.diff(curve.base) + np.diff(curve.new)))
    wanted = np.searchsorted(way, np.linspace(0, way[-1], CURVE_POINTS - 1))
    kept = np.unique([*wanted, len(way) - 1])
    chosen = np.stack([curve.margins, curve.base, curve.new], axis=1)[kept]
    return [[round(float(value), 6) for value in point] for point in chosen]


def new_at_base_accuracy(curve: Sequence[Sequence[float]], base: float) -> float | None:
    """Accuracy on new classes at the margin at which accuracy on base classes is `base`; None if it is never so high.

    curve: points (margin, base, new) such as a result has; between two of them accuracies lie on a straight line.
    """
    best: dict[float, float] = {}
    for _, its_base, new in curve:
        best[its_base] = max(new, best.get(its_base, 0.0))
    if not best or base > max(best):
        return None
    known = sorted(best)
    return float(np.interp(base, known, [best[each] for each in known]))


def choose_margin(runs: Sequence[Scores]) -> float | None:
    """The margin for a preset, from runs on the inner benchmark that differ in their seeds; None without new classes.

    Of all multiples of STEP it is the one with the highest harmonic mean among those whose last-session accuracy is at
    most COST below the best of all; both are means over the runs. Among equals it is the one nearest to 0.
    """
    curves = [curve for curve in map(margin_curve, runs) if curve]
    if not curves:
        return None
    # the curves change at these margins only, so these steps stand for all others
    below = np.floor(np.concatenate([curve.margins for curve in curves]) / STEP)
    steps = np.unique([0.0, *below, *(below + 1)])
    margins = np.round(STEP * steps[np.argsort(np.abs(steps), kind="stable")], 10)
    last = np.mean([curve.last[curve.at(margins)] for curve in curves], axis=0)
    harmonic_mean = np.mean([curve.harmonic_mean[curve.at(margins)] for curve in curves], axis=0)
    allowed = last >= last.max() - COST - 1e-9  # of rounding
    return float(margins[np.where(allowed, harmonic_mean, -1).argmax()])
