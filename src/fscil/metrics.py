"""The metrics of a run: pure functions of the predictions of all sessions, in NumPy.

Every function takes
- labels [n_test]: the class of every test image; classes are numbered from 0 in order of arrival;
- predictions [sessions, n_test]: the class predicted after each session, -1 where the image's class was not yet seen;
- classes_per_session: how many classes arrived in each session, e.g. [60, 5, 5, ...]; session 0 is the base.

Anything that NumPy can convert is accepted, including CPU tensors. Accuracies are in percent. A value for which nothing
was measured (new classes in a benchmark without any) is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fscil.errors import UserError

Ints = NDArray[np.int64]


class PerClass(TypedDict):
    """Means of per-class recalls at the last session: every class counts the same, however many images it has."""

    base: float | None
    new: float | None
    harmonic_mean: float | None
    last: float | None


class Headline(TypedDict):
    """The numbers that tables show: accuracy after every session, and what follows from it and the last session."""

    accuracy: list[float]
    last: float
    pd: float
    average: float
    base: float | None
    new: float | None
    harmonic_mean: float | None


class Summary(Headline):
    per_class: PerClass
    forgetting: list[float]
    confusion: list[list[int]]


def summarise(labels: ArrayLike, predictions: ArrayLike, classes_per_session: Sequence[int]) -> Summary:
    """Every number of a result: the per-session curves, and the rest at the last session."""
    y, predicted = checked(labels, predictions, classes_per_session)
    confusion = confusion_matrix(y, predicted[-1], sum(classes_per_session))
    base, new, every = per_class_accuracy(confusion, classes_per_session[0])
    return {
        **headline(y, predicted, classes_per_session),
        "per_class": PerClass(base=base, new=new, harmonic_mean=harmonic_mean(base, new), last=every),
        "forgetting": forgetting(y, predicted, classes_per_session),
        "confusion": confusion.tolist(),
    }


def headline(labels: ArrayLike, predictions: ArrayLike, classes_per_session: Sequence[int]) -> Headline:
    y, predicted = checked(labels, predictions, classes_per_session)
    accuracy = session_accuracy(y, predicted, classes_per_session)
    base, new = base_and_new(y, predicted[-1], classes_per_session[0])
    return Headline(
        accuracy=accuracy,
        last=accuracy[-1],
        pd=performance_drop(accuracy),
        average=sum(accuracy) / len(accuracy),
        base=base,
        new=new,
        harmonic_mean=harmonic_mean(base, new),
    )


def session_accuracy(labels: ArrayLike, predictions: ArrayLike, classes_per_session: Sequence[int]) -> list[float]:
    """Top-1 accuracy after every session, per sample over the test images of all classes seen so far."""
    y, predicted = checked(labels, predictions, classes_per_session)
    seen = np.cumsum(classes_per_session)
    accuracies = [percent_correct(y, predicted[i], y < seen[i]) for i in range(len(seen))]
    if accuracies[0] is None:
        raise UserError("the base classes have no test images; add some, or there is nothing to measure")
    return [accuracy for accuracy in accuracies if accuracy is not None]  # session 0's images are in every session


def performance_drop(accuracy: Sequence[float]) -> float:
    """PD: the first session's accuracy minus the last one's."""
    return accuracy[0] - accuracy[-1]


def base_and_new(labels: ArrayLike, predicted: ArrayLike, base_classes: int) -> tuple[float | None, float | None]:
    """Per-sample accuracy after one session on the base classes and on all later ones; predicted is [n_test].

    Both are measured among all seen classes: an image of a base class taken for a new one is an error.
    """
    y, p = np.asarray(labels), np.asarray(predicted)
    return percent_correct(y, p, (y < base_classes) & (p >= 0)), percent_correct(y, p, (y >= base_classes) & (p >= 0))


def harmonic_mean(base: float | None, new: float | None) -> float | None:
    if base is None or new is None:
        return None
    return 2 * base * new / (base + new) if base + new > 0 else 0.0


def per_class_accuracy(confusion: Ints, base_classes: int) -> tuple[float | None, float | None, float | None]:
    """Means of the per-class recalls over base, new and all classes; a class without test images is left out."""
    images = confusion.sum(axis=1)
    recall = 100 * confusion.diagonal() / np.maximum(images, 1)

    def mean(group: slice) -> float | None:
        present = images[group] > 0
        return float(recall[group][present].mean()) if present.any() else None

    return mean(slice(0, base_classes)), mean(slice(base_classes, None)), mean(slice(None))


def forgetting(labels: ArrayLike, predictions: ArrayLike, classes_per_session: Sequence[int]) -> list[float]:
    """How much has been forgotten after every session.

    The classes that arrived together are one group. A group's forgetting is its best accuracy after any earlier session
    minus its accuracy now; the value is the mean over all groups that were seen before. Negative means that old classes
    have improved. Session 0 has nothing to forget: 0.
    """
    y, predicted = checked(labels, predictions, classes_per_session)
    groups = group_accuracy(y, predicted, classes_per_session)
    values = [0.0]
    for i in range(1, len(groups)):
        tested = [g for g in range(i) if not np.isnan(groups[g, g])]
        drops = [groups[g:i, g].max() - groups[i, g] for g in tested]
        values.append(float(np.mean(drops)) if drops else 0.0)
    return values


def group_accuracy(
    labels: ArrayLike, predictions: ArrayLike, classes_per_session: Sequence[int]
) -> NDArray[np.float64]:
    """[sessions, groups]: accuracy after session i on the classes of session g; nan before they arrive, or untested."""
    y, predicted = checked(labels, predictions, classes_per_session)
    edges = np.cumsum([0, *classes_per_session])
    table = np.full((len(predicted), len(predicted)), np.nan)
    for g in range(len(predicted)):
        here = (y >= edges[g]) & (y < edges[g + 1])
        if here.any():
            table[g:, g] = 100 * (predicted[g:, here] == y[here]).mean(axis=1)
    return table


def confusion_matrix(labels: ArrayLike, predicted: ArrayLike, classes: int) -> Ints:
    """[classes, classes] counts after one session: rows are the true class, columns the predicted one."""
    y, p = np.asarray(labels, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    judged = p >= 0
    counts: Ints = np.bincount(y[judged] * classes + p[judged], minlength=classes * classes)
    return counts.reshape(classes, classes)


def percent_correct(labels: NDArray[np.int64], predicted: NDArray[np.int64], where: NDArray[np.bool_]) -> float | None:
    return 100 * float((predicted[where] == labels[where]).mean()) if where.any() else None


def checked(labels: ArrayLike, predictions: ArrayLike, classes_per_session: Sequence[int]) -> tuple[Ints, Ints]:
    """Labels and predictions as integer arrays, after checking that they are consistent."""
    y, predicted = np.asarray(labels, dtype=np.int64), np.asarray(predictions, dtype=np.int64)
    if not classes_per_session or min(classes_per_session) < 1:
        raise UserError(
            f"classes_per_session must list at least one class per session, got {list(classes_per_session)}"
        )
    if y.ndim != 1 or predicted.shape != (len(classes_per_session), len(y)):
        raise UserError(
            f"predictions must be [{len(classes_per_session)} sessions, {y.size} test images], got {predicted.shape}"
        )
    if y.size and not 0 <= y.min() <= y.max() < sum(classes_per_session):
        raise UserError(f"test labels must lie in 0 .. {sum(classes_per_session) - 1}, got {y.min()} .. {y.max()}")
    for i, seen in enumerate(np.cumsum(classes_per_session)):
        here = predicted[i, y < seen]
        if here.size and not 0 <= here.min() <= here.max() < seen:
            raise UserError(
                f"after session {i} predictions must lie in 0 .. {seen - 1}, got {here.min()} .. {here.max()}"
            )
        if (predicted[i, y >= seen] != -1).any():
            raise UserError(f"predictions of session {i} must be -1 for images of classes that arrive later")
    return y, predicted
