"""The curve of new over base accuracy that a margin moves a method along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fscil.labels import Labels
from fscil.report import figures
from fscil.results import Result

Floats = NDArray[np.float64]

HARMONIC_MEANS = (20, 40, 60, 80)  # that lines in the background stand for


def margin_figure(groups: Sequence[Sequence[Result]], named: Labels) -> Figure:
    """Accuracy on new over base classes after the last session, for every margin; one curve per method.

    All results must have a curve. A group may be empty: it keeps its colour, the same in all pictures of a report.
    """
    with figures.style():
        figure = Figure(figsize=(5.0, 4.4), layout="constrained")
        axes = figure.subplots()
        drawn = [
            (group, figures.colour(i), figures.drawable(named.each[i].text)) for i, group in enumerate(groups) if group
        ]
        for group, colour, label in drawn:
            draw_curve(axes, group, colour, label)
        for group, colour, _ in drawn:
            draw_dots(axes, group, colour)
        start_at_zero(axes, [result for group in groups for result in group])
        draw_harmonic_means(axes)
        figures.legend_below(figure)
    return figure


def draw_curve(axes: Axes, group: Sequence[Result], colour: str, label: str) -> None:
    """The mean over the runs; behind it, each of several runs."""
    for result in group if len(group) > 1 else ():
        _, base, new = np.array(result.curve).T
        axes.plot(base, new, color=colour, linewidth=0.7, alpha=0.4)
    base, new = mean_curve(group)
    # methods that differ in their margin only have one curve, which then shows the colours of both
    is_drawn = any(np.array_equal(line.get_xydata(), np.stack([base, new], axis=1)) for line in axes.lines)
    axes.plot(base, new, color=colour, linewidth=1.8, linestyle=(0, (3, 3)) if is_drawn else "-", label=label)


def mean_curve(group: Sequence[Result]) -> tuple[Floats, Floats]:
    """Mean base and mean new accuracy where the runs have come equally far from one end of their curve to the other.

    Equal margins would not do: the same margin means little to a run with large scores and much to one with small ones.
    """
    curves = []
    for result in group:
        _, base, new = np.array(result.curve).T
        way = np.append(0.0, np.cumsum(np.abs(np.diff(base)) + np.abs(np.diff(new))))
        curves.append((way / max(way[-1], 1e-9), base, new))
    places = np.unique(np.concatenate([way for way, _, _ in curves]))
    mean_base = np.mean([np.interp(places, way, base) for way, base, _ in curves], axis=0)
    mean_new = np.mean([np.interp(places, way, new) for way, _, new in curves], axis=0)
    return mean_base, mean_new


def draw_dots(axes: Axes, group: Sequence[Result], colour: str) -> None:
    """Filled: the runs' base and new accuracy, as in the tables. Hollow: the same at margin 0, if theirs is another."""
    look: dict[str, Any] = {"marker": "o", "markersize": 7, "linestyle": "", "color": colour, "clip_on": False}
    zero = [result.margin_zero for result in group if result.margin_zero]
    if zero and any(result.margin for result in group):
        draw_dot(axes, [(at["base"], at["new"]) for at in zero], markerfacecolor=figures.PAPER, zorder=3, **look)
    draw_dot(axes, [(result.base, result.new) for result in group], zorder=4, **look)


def draw_dot(axes: Axes, points: Sequence[tuple[float | None, float | None]], **look: Any) -> None:
    """At the mean of the points (base, new)."""
    base, new = np.array(points, dtype=float).mean(axis=0)
    axes.plot([base], [new], **look)


def start_at_zero(axes: Axes, results: Sequence[Result]) -> None:
    """Both axes reach a little beyond the ends of all curves."""
    ends = np.array([(result.base_among_base, result.new_among_new) for result in results], dtype=float)
    right, top = np.minimum(10 * np.ceil(ends.max(axis=0) / 10 + 0.2), 102)
    axes.set(xlim=(0, right), ylim=(0, top))
    axes.set_xlabel("accuracy on base classes (%)")
    axes.set_ylabel("accuracy on new classes (%)")


def draw_harmonic_means(axes: Axes) -> None:
    """Lines of equal harmonic mean, each named where it leaves the picture."""
    (_, right), (_, top) = axes.get_xlim(), axes.get_ylim()
    for mean in HARMONIC_MEANS:
        if 2 * right * top / (right + top) <= mean:
            break
        # from where the line enters at the top, new = mean * base / (2 * base - mean)
        base = np.linspace(mean * top / (2 * top - mean), right, 100)
        new = mean * base / (2 * base - mean)
        axes.plot(base, new, color=figures.INK, alpha=0.15, linewidth=0.8, zorder=1)
        axes.annotate(
            f"HM {mean}", (right, new[-1]), (3, 0), textcoords="offset points", va="center", fontsize=7, alpha=0.6
        )
