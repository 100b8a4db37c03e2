"""What stands in the tables of results: lines of numbers, ours beside the paper's."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from fscil import paper
from fscil.labels import labels, margin_in_words, repetitions, runs_in_words

if TYPE_CHECKING:
    from fscil.results import Result

Value = float | None
SUMMARY = ("PD", "average", "base", "new", "HM", "margin", "area", "ΔPD")
RELATIVE = SUMMARY[-1]  # the paper's "relative improvement" of LIMIT over this row
OVER_ALL_MARGINS = {
    "base_among_base": "base only",
    "new_among_new": "new only",
    "best_harmonic_mean": "best HM",
    "best_last": "best last",
}


LIMIT = "limit"


@dataclass(frozen=True)
class Line:
    """One line of a table, with a value for every column: the sessions (None beyond the last), then the summary."""

    kind: Literal["ours", "margin zero", "draws", "paper", "difference"]
    label: str
    detail: str
    values: list[Value]
    deviations: list[Value]  # standard deviations, None where only one value is known


def column_names(results: Sequence[Result]) -> list[str]:
    """Sessions and summary; runs of earlier versions have no area, and without `limit` nothing is relative to it.

    A margin of 0 is shown, too, since the other columns depend on it; only where there is no area it would say nothing.
    """
    sessions = range(max((len(r.accuracy) for r in results), default=0))
    has_margin = has_area(results) or any(result.margin for result in results)
    lacking = {"margin": not has_margin, "area": not has_area(results), RELATIVE: pd_of_limit(results) is None}
    return [*map(str, sessions), *(name for name in SUMMARY if not lacking.get(name))]


def pd_of_limit(results: Sequence[Result]) -> float | None:
    """The mean PD of `limit`, with as few settings changed as possible, if there are other methods beside it."""
    groups = repetitions(results)
    found = [group for group in groups if group[0].preset == LIMIT]
    if not found or {group[0].method for group in groups} == {LIMIT}:
        return None
    return statistics.fmean(result.pd for result in min(found, key=lambda group: len(group[0].changed)))


def has_area(results: Sequence[Result]) -> bool:
    return any(result.area is not None for result in results)


def session_count(names: Sequence[str]) -> int:
    return len([name for name in names if name not in SUMMARY])


def table_lines(results: Sequence[Result]) -> list[Line]:
    """For every method: ours (mean and standard deviation over its seeds), the paper's line and the difference."""
    names, pd = column_names(results), pd_of_limit(results)
    sessions, groups = session_count(names), repetitions(results)
    row = partial(line_values, names=names, pd_of_limit=pd)
    lines: list[Line] = []
    for group, label in zip(groups, labels(groups).each, strict=True):
        rows = [
            row(r.accuracy, base=r.base, new=r.new, HM=r.harmonic_mean, margin=r.margin, area=r.area) for r in group
        ]
        ours = Line("ours", label.text, detail(group), *of_columns(rows, names))
        lines.append(ours)
        if margin_in_words(group):
            at_zero = [(result.margin_zero, result.area) for result in group]
            rows = [
                row(z["accuracy"], base=z["base"], new=z["new"], HM=z["harmonic_mean"], margin=0.0, area=area)
                for z, area in at_zero
                if z
            ]
            if rows:
                lines.append(Line("margin zero", "margin 0", "", *of_columns(rows, names)))
        draws = [(trial, result.margin) for result in group for trial in result.trials]
        if len(draws) > 1:
            rows = [row(t["accuracy"], HM=t["harmonic_mean"], margin=margin, area=t["area"]) for t, margin in draws]
            lines.append(Line("draws", f"{len(draws)} draws of shots", "", *of_columns(rows, names)))
        published = published_row(group[0])
        if published:
            p = published
            values = line_values(p.accuracy, names, base=p.base, new=p.new, HM=p.harmonic_mean)
            values[sessions] = p.pd  # as printed
            its = paper.find(p.benchmark, LIMIT)
            if names[-1] == RELATIVE and its:
                values[-1] = p.pd - its.pd
            lines.append(Line("paper", f"paper, {p.augmentation}", "", values, [None] * len(values)))
            # The paper's base, new and HM are means over classes, ours are per sample: shown, but not subtracted.
            compared = [None if i > sessions + 1 else v for i, v in enumerate(values)]
            gap = [None if a is None or b is None else a - b for a, b in zip(ours.values, compared, strict=True)]
            lines.append(Line("difference", "difference", "", gap, [None] * len(gap)))
    return lines


def published_row(result: Result) -> paper.Row | None:
    return paper.find(result.benchmark, result.method, result.augmentation, result.classes_per_session)


def detail(group: Sequence[Result]) -> str:
    return ", ".join(filter(None, [runs_in_words(group), margin_in_words(group)]))


def line_values(
    accuracy: Sequence[float], names: Sequence[str], pd_of_limit: Value = None, **known: Value
) -> list[Value]:
    """A value for every column; what is known beyond the accuracies is given by the name of its column."""
    sessions, pd = session_count(names), accuracy[0] - accuracy[-1]
    known |= {"PD": pd, "average": statistics.fmean(accuracy)}
    known[RELATIVE] = None if pd_of_limit is None else pd - pd_of_limit
    padding = [None] * (sessions - len(accuracy))
    return [*accuracy, *padding, *(known.get(name) for name in names[sessions:])]


def lines_over_all_margins(results: Sequence[Result]) -> list[Line]:
    """For every method: the ends of its curve of new over base accuracy, and the best on it."""
    groups = repetitions(results)
    lines = []
    for group, label in zip(groups, labels(groups).each, strict=True):
        rows = [[getattr(result, key) for key in OVER_ALL_MARGINS] for result in group]
        if has_area(group):
            lines.append(Line("ours", label.text, runs_in_words(group), *mean_and_deviation(rows)))
    return lines


COSTS = ("seconds", "parameters", "training only", "exemplars")


def costs(results: Sequence[Result]) -> list[tuple[str, list[str]]]:
    """For every method its label and, as text: the mean seconds of a run, parameters, and images that it kept.

    Stages that came from the cache count with the seconds that they once took.
    """
    groups = repetitions(results)
    found = []
    for group, label in zip(groups, labels(groups).each, strict=True):
        seconds = statistics.fmean(seconds_of(result) for result in group)
        kept, training_only = (group[0].parameters[key] for key in ("inference", "training_only"))
        exemplars = round(statistics.fmean(result.exemplars for result in group))
        cells = [f"{seconds:,.1f}" if seconds < 10 else f"{seconds:,.0f}"]
        found.append((label.text, [*cells, *(f"{count:,}" for count in (kept, training_only, exemplars))]))
    return found


def seconds_of(result: Result) -> float:
    """Of the whole run; a resumed one has no total, but its stages. What a session trained is part of `sessions`."""
    part_of_sessions = re.compile(r".*-\d+(-balanced)?")  # by the session's first class, as in icarl-60
    stages = {
        name: stage for name, stage in result.seconds.items() if stage["cached"] or not part_of_sessions.fullmatch(name)
    }
    total = stages.pop("total", None)
    if total is not None:
        stages = {name: stage for name, stage in stages.items() if stage["cached"]}
    return sum(stage["seconds"] for stage in stages.values()) + (total["seconds"] if total else 0.0)


def of_columns(rows: Sequence[Sequence[Value]], names: Sequence[str]) -> tuple[list[Value], list[Value]]:
    """Means and deviations; margins are settings, and what is relative to a mean has no deviation of its own."""
    means, deviations = mean_and_deviation(rows)
    without = ("margin", RELATIVE)
    return means, [None if name in without else each for name, each in zip(names, deviations, strict=True)]


def mean_and_deviation(rows: Sequence[Sequence[Value]]) -> tuple[list[Value], list[Value]]:
    """Column by column; a deviation needs two values."""
    columns = [[v for v in column if v is not None] for column in zip(*rows, strict=True)]
    means = [statistics.fmean(column) if column else None for column in columns]
    return means, [statistics.stdev(column) if len(column) > 1 else None for column in columns]


def number(value: Value, signed: bool = False) -> str:
    if value is None:
        return "–"
    value = round(value, 2) + 0.0  # never "-0.00"
    return f"{value:+.2f}" if signed else f"{value:.2f}"


def is_gain(column: str, difference: float) -> bool:
    """Whether a difference is in our favour: PD is the one column where less is better."""
    return difference < 0 if column == "PD" else difference > 0


def cell(line: Line, column: int) -> tuple[str, str]:
    """The number, and its deviation if it has one."""
    deviation = line.deviations[column]
    spread = "" if deviation is None else f"±{deviation:.2f}"
    return number(line.values[column], signed=line.kind == "difference"), spread
