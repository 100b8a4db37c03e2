"""The confusion matrix after the last session, with the borders between sessions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from fscil.report import figures
from fscil.results import Result
from fscil.tables import name_of

MOST_LABELS = 11  # on an axis


def summed(group: Sequence[Result]) -> NDArray[np.int64]:
    """[C, C] counts over all runs of a group."""
    counts: NDArray[np.int64] = np.sum([np.array(result.confusion, dtype=np.int64) for result in group], axis=0)
    return counts


def confusion_figure(groups: Sequence[Sequence[Result]]) -> Figure:
    """One matrix per method, every row scaled to the share of that class's test images."""
    across = 2 if len(groups) == 4 else min(3, len(groups))
    down = -(-len(groups) // across)
    side = 5.0 if len(groups) == 1 else 3.6
    with figures.style():
        figure = Figure(figsize=(across * side + 0.6, down * side), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False).ravel()
        for axes, group in zip(grid, groups, strict=False):
            image = draw_matrix(axes, summed(group), group[0].classes_per_session)
            axes.set_title(name_of(group[0]), fontsize=9)
        for axes in grid[len(groups) :]:
            axes.set_visible(False)
        bar = figure.colorbar(image, ax=list(grid), shrink=0.6, label="share of the class's test images")
        bar.outline.set_visible(False)
    return figure


def draw_matrix(axes: Axes, confusion: NDArray[np.int64], classes_per_session: Sequence[int]) -> AxesImage:
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    # The square root lifts the rare confusions into sight beside a diagonal that is near 1.
    image = axes.imshow(shares, cmap="magma", norm=PowerNorm(0.5, 0, 1), interpolation="none")
    edges = np.cumsum([0, *classes_per_session])
    for position, edge in enumerate(edges[1:-1]):
        width = 1.0 if position == 0 else 0.4  # the border between base and new classes is the one to see
        axes.axhline(edge - 0.5, color="white", linewidth=width, alpha=0.7)
        axes.axvline(edge - 0.5, color="white", linewidth=width, alpha=0.7)
    centres = (edges[1:] + edges[:-1]) / 2 - 0.5
    shown = range(0, len(centres), 1 + (len(centres) - 1) // MOST_LABELS)
    names = ["base" if i == 0 else str(i) for i in shown]
    axes.set_xticks(centres[list(shown)], names, fontsize=7.5)
    axes.set_yticks(centres[list(shown)], names, fontsize=7.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("predicted, by session of arrival", fontsize=8)
    axes.set_ylabel("true", fontsize=8)
    return image


def most_confused(group: Sequence[Result], count: int = 8) -> list[tuple[str, str, int, float]]:
    """The commonest mistakes: true class, what it was taken for, how often, and that as percent of the class."""
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
