"""The confusion matrix after the last session, and what it says about every class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from fscil.report import figures
from fscil.results import Result

FEW = 20  # up to this many classes are named along an axis, with counts written into the cells
MOST_LABELS = 11  # sessions along an axis
LONGEST_NAME = 16  # characters of a class along an axis
BLUE = LinearSegmentedColormap.from_list("blue", ["#2f74bb00", "#2f74bbff"])  # from the page's own colour, be it dark


def summed(group: Sequence[Result]) -> NDArray[np.int64]:
    """[C, C] counts over all runs of a group."""
    counts: NDArray[np.int64] = np.sum([np.array(result.confusion, dtype=np.int64) for result in group], axis=0)
    return counts


def confusion_figure(group: Sequence[Result], title: str) -> Figure:
    """One matrix, every row coloured by its share of that class's test images."""
    few = len(group[0].class_names) <= FEW
    with figures.style():
        figure = Figure(figsize=(4.6, 4.3 if few else 3.9), layout="constrained")
        axes = figure.subplots()
        counts = summed(group)
        image = draw_shares(axes, counts)
        draw_borders(axes, group[0].classes_per_session)
        if few:
            name_classes(axes, group[0].class_names)
            write_counts(axes, counts)
        else:
            name_sessions(axes, group[0].classes_per_session)
            bar = figure.colorbar(image, ax=axes, shrink=0.6, label="share of the class's test images")
            bar.outline.set_visible(False)
        axes.set_title(figures.drawable(title), fontsize=9)
    return figure


def draw_shares(axes: Axes, counts: NDArray[np.int64]) -> AxesImage:
    # The square root makes rare confusions visible beside a diagonal near 1.
    image = axes.imshow(shares_of(counts), cmap=BLUE, norm=PowerNorm(0.5, 0, 1), interpolation="none")
    axes.tick_params(length=0)
    axes.spines[:].set(visible=True, alpha=0.3, linewidth=0.6)
    return image


def shares_of(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return shares


def draw_borders(axes: Axes, classes_per_session: Sequence[int]) -> None:
    for position, edge in enumerate(np.cumsum(classes_per_session)[:-1]):
        width = 1.0 if position == 0 else 0.4  # the border between base and new classes stands out
        axes.axhline(edge - 0.5, color=figures.INK, linewidth=width, alpha=0.6)
        axes.axvline(edge - 0.5, color=figures.INK, linewidth=width, alpha=0.6)


def name_classes(axes: Axes, names: Sequence[str]) -> None:
    short = [figures.drawable(" ".join(name.split())) for name in names]
    short = [name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1].rstrip() + "…" for name in short]
    axes.set_xticks(range(len(short)), short, fontsize=7, rotation=90)
    axes.set_yticks(range(len(short)), short, fontsize=7)
    axes.set_xlabel("predicted", fontsize=8)
    axes.set_ylabel("true", fontsize=8)


def name_sessions(axes: Axes, classes_per_session: Sequence[int]) -> None:
    edges = np.cumsum([0, *classes_per_session])
    centres = (edges[1:] + edges[:-1]) / 2 - 0.5
    shown = range(0, len(centres), 1 + (len(centres) - 1) // MOST_LABELS)
    names = ["base" if i == 0 else str(i) for i in shown]
    axes.set_xticks(centres[list(shown)], names, fontsize=7.5)
    axes.set_yticks(centres[list(shown)], names, fontsize=7.5)
    axes.set_xlabel("predicted, by session of arrival", fontsize=8)
    axes.set_ylabel("true", fontsize=8)


def write_counts(axes: Axes, counts: NDArray[np.int64]) -> None:
    shares = shares_of(counts)
    size = 7 if len(counts) <= 12 and counts.max() < 1000 else 5.5
    for true, taken in np.argwhere(counts > 0):
        ink = "white" if shares[true, taken] > 0.35 else figures.INK
        count = str(counts[true, taken])
        axes.text(taken, true, count, ha="center", va="center", fontsize=size, color=ink)


def class_counts(group: Sequence[Result]) -> list[tuple[int, int]]:
    """(right, images) of every class, over all runs of a group."""
    counts = summed(group)
    return [(int(right), int(images)) for right, images in zip(counts.diagonal(), counts.sum(axis=1), strict=True)]


def most_confused(group: Sequence[Result], count: int = 8) -> list[tuple[str, str, int, float]]:
    """The commonest mistakes: true class, what it was taken for, how often, and the percentage of the class."""
    confusion = summed(group)
    images = confusion.sum(axis=1)
    mistakes = confusion - np.diag(confusion.diagonal())
    order = np.argsort(-mistakes, axis=None, kind="stable")[:count]
    names = group[0].class_names
    pairs = [divmod(int(position), len(names)) for position in order]
    return [
        (names[true], names[taken], int(mistakes[true, taken]), 100 * float(mistakes[true, taken] / images[true]))
        for true, taken in pairs
        if mistakes[true, taken] > 0
    ]
