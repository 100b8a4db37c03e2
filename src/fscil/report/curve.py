"""The session curve: accuracy over all seen classes after every session, ours and the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fscil.errors import UserError
from fscil.files import write_atomically
from fscil.labels import labels, name_of, repetitions
from fscil.report import figures
from fscil.results import Result
from fscil.table_lines import published_row

MOST_IN_LEGEND = 6  # methods
UPPER_BOUND = "joint"
BESIDE_AXES = 0.8  # inches of a figure's height that its axes do not have


def write_curve(results: Sequence[Result], path: Path) -> Path:
    """Write the session curve of the results (of one benchmark) as a PNG file."""
    if not results:
        raise UserError("no results to draw; name at least one run folder")
    write_atomically(path, figures.png(curve_figure(results, stands_alone=True)))
    return Path(path)


def curve_figure(results: Sequence[Result], stands_alone: bool = False) -> Figure:
    """One line per method with a band of one standard deviation over its seeds; the paper's row dashed.

    If the picture stands alone, its legend spells out what is a footnote in a report. Many lines have their names at
    their ends, without the paper's lines, which would hide them.
    """
    groups = repetitions(results)
    named = labels(groups).each
    with figures.style():
        figure, axes = session_axes(results, "accuracy over all seen classes (%)")
        paper_shown = set()
        for position, (group, label) in enumerate(zip(groups, named, strict=True)):
            text = f"{name_of(group[0])}: {label.footnote}" if stands_alone and label.footnote else label.text
            draw_band(axes, [r.accuracy for r in group], figures.drawable(text), position)
            row = published_row(group[0])
            if row and row not in paper_shown and not are_many(groups):  # presets of one method share the paper's row
                paper_shown.add(row)
                name = f"paper: {row.method}, {row.augmentation}"
                draw_line(axes, row.accuracy, name, figures.colour(position), dashed=True)
        start_at_zero_or_say_so(axes)
        if are_many(groups):
            names = [name_of(group[0]) for group in groups]
            unique = [names.count(name) == 1 for name in names]
            texts = [name if alone else label.text for name, alone, label in zip(names, unique, named, strict=True)]
            name_ends(figure, axes, groups, texts)
        else:
            mark_lead(axes, groups)
            figures.legend_below(figure)
    return figure


def are_many(groups: Sequence[Sequence[Result]]) -> bool:
    return len(groups) > MOST_IN_LEGEND and len({len(group[0].accuracy) for group in groups}) == 1


def name_ends(figure: Figure, axes: Axes, groups: Sequence[Sequence[Result]], names: Sequence[str]) -> None:
    """Every name beside the end of its line, as near as the other names allow; a long list makes the figure taller."""
    from sklearn.isotonic import isotonic_regression  # slow to import, and seldom needed

    width, height = figure.get_size_inches()
    height = max(height, BESIDE_AXES + figures.LEGEND_LINE * (len(names) + 1)) + 1
    figure.set_size_inches(width + 1.4, height)
    low, high = axes.get_ylim()
    gap = figures.LEGEND_LINE * (high - low) / (height - BESIDE_AXES)
    ends = np.array([end_of(group) for group in groups])
    first, ahead = lead(groups)
    order = np.argsort(-ends, kind="stable")
    steps = gap * np.arange(len(names))
    heights = isotonic_regression(ends[order] + steps, increasing=False) - steps  # at least a gap apart
    heights += max(0.0, low - heights[-1])
    last = len(groups[0][0].accuracy) - 1
    for i, at in zip(order, heights, strict=True):
        said = f"  +{ahead:.2f}" if i == first else ""
        colour = figures.colour(i)
        axes.annotate(
            figures.drawable(names[i]) + said,
            (last, ends[i]),
            xytext=(last * 1.06, at),
            va="center",
            color=colour,
            fontsize=8,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5),
            },
        )  # fmt: skip


def mark_lead(axes: Axes, groups: Sequence[Sequence[Result]]) -> None:
    """At the end of the best line: how far it is ahead."""
    if len(groups) < 2 or len({len(group[0].accuracy) for group in groups}) > 1:
        return
    position, gap = lead(groups)
    axes.annotate(
        f"+{gap:.2f}",
        (len(groups[position][0].accuracy) - 1, end_of(groups[position])),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        color=figures.colour(position),
        fontsize=8,
        annotation_clip=False,
    )


def lead(groups: Sequence[Sequence[Result]]) -> tuple[int, float]:
    """Which line ends highest, and how far ahead of the best other method, or else of the best other line.

    The upper bound is not a rival, unless there is nothing else.
    """
    rivals = [i for i, group in enumerate(groups) if group[0].method != UPPER_BOUND]
    rivals = rivals if len(rivals) > 1 else list(range(len(groups)))
    best = max(rivals, key=lambda i: end_of(groups[i]))
    others = [i for i in rivals if groups[i][0].method != groups[best][0].method]
    others = others or [i for i in rivals if i != best]
    return best, end_of(groups[best]) - max(end_of(groups[i]) for i in others)


def end_of(group: Sequence[Result]) -> float:
    return float(np.mean([result.accuracy[-1] for result in group]))


def forgetting_figure(results: Sequence[Result]) -> Figure:
    """Forgetting after every session, one line per method."""
    with figures.style():
        figure, axes = session_axes(results, "forgetting (points)")
        groups = repetitions(results)
        for position, (group, label) in enumerate(zip(groups, labels(groups).each, strict=True)):
            draw_band(axes, [r.forgetting for r in group], figures.drawable(label.text), position)
        axes.axhline(0, color=figures.INK, linewidth=0.8)
        figures.legend_below(figure)
    return figure


def session_axes(results: Sequence[Result], quantity: str) -> tuple[Figure, Axes]:
    """Sessions along x, each with the number of classes seen by then (where all results agree on it)."""
    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    axes = figure.subplots()
    streams = {tuple(np.cumsum(r.classes_per_session).tolist()) for r in results}
    longest = max(streams, key=len)
    if len(streams) == 1:
        axes.set_xticks(range(len(longest)), [f"{i}\n{seen}" for i, seen in enumerate(longest)])
        axes.set_xlabel("session, and classes seen by then")
    else:
        axes.set_xticks(range(len(longest)))
        axes.set_xlabel("session")
    axes.set_ylabel(quantity)
    figures.quiet_grid(axes)
    return figure, axes


def start_at_zero_or_say_so(axes: Axes) -> None:
    """Curves that are close together need a truncated axis; its label then says where it starts."""
    low, high = axes.get_ylim()
    bottom = 10 * math.floor(low / 10) if low > high / 2 else 0
    axes.set_ylim(bottom=bottom)
    if bottom:
        axes.set_ylabel(f"{axes.get_ylabel()}\nthe axis starts at {bottom}")


def draw_band(axes: Axes, curves: Sequence[Sequence[float]], label: str, position: int) -> None:
    """The mean of the curves [runs, sessions], and a band of one standard deviation where there are several."""
    values, colour = np.array(curves), figures.colour(position)
    draw_line(axes, values.mean(axis=0).tolist(), label, colour, marker=figures.marker(position))
    if len(values) > 1:
        middle, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
        axes.fill_between(
            range(values.shape[1]), middle - spread, middle + spread, color=colour, alpha=0.2, linewidth=0
        )


def draw_line(
    axes: Axes, values: Sequence[float], label: str, colour: str, dashed: bool = False, marker: str = "o"
) -> None:
    look: dict[str, Any] = (
        {"linestyle": "--", "marker": "", "linewidth": 1.2} if dashed else {"marker": marker, "markersize": 3.5}
    )
    if dashed and len(values) == 1:
        look["marker"] = "_"  # a line of one point cannot be seen
    axes.plot(range(len(values)), values, label=label, color=colour, **look)
