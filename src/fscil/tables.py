"""Tables of results against the paper's numbers: the lines, and their forms for the terminal and for Markdown."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fscil import paper

if TYPE_CHECKING:
    from fscil.results import Result

Value = float | None
TYPED = re.compile(r"(?!augmentation=)[a-z_]+=\S+")  # a setting on the command line
SUMMARY = ("PD", "average", "base", "new", "HM")


@dataclass(frozen=True)
class Line:
    """One line of a table: the sessions' accuracies (None beyond the last), then the five columns of SUMMARY."""

    kind: Literal["ours", "paper", "difference"]
    label: str
    detail: str
    values: list[Value]
    deviations: list[Value]  # standard deviations, None where only one value is known


def repetitions(results: Sequence[Result]) -> list[list[Result]]:
    """Results that differ in seed or trial only, together; a run that is given twice does not count as two seeds."""
    groups: dict[tuple[object, ...], list[Result]] = {}
    times_met: Counter[tuple[object, ...]] = Counter()
    for result in results:
        settings = (result.config_hash.partition("-")[0], result.augmentation, result.weights)
        same = (result.benchmark, *result.classes_per_session, result.method, result.preset, *settings)
        run = (*same, result.seed, result.trial)
        groups.setdefault((*same, times_met[run]), []).append(result)
        times_met[run] += 1
    return list(groups.values())


def column_names(results: Sequence[Result]) -> list[str]:
    return [*map(str, range(max((len(r.accuracy) for r in results), default=0))), *SUMMARY]


def table_lines(results: Sequence[Result]) -> list[Line]:
    """For every method: ours (mean and standard deviation over its seeds), the paper's line and the difference."""
    sessions = len(column_names(results)) - len(SUMMARY)
    lines: list[Line] = []
    for group in repetitions(results):
        ours = our_line(group, sessions, name_benchmark=len(benchmarks(results)) > 1)
        lines.append(ours)
        draws = [trial for result in group for trial in result.trials]
        if len(draws) > 1:
            rows = [curve_values(t["accuracy"], None, None, t["harmonic_mean"], sessions) for t in draws]
            lines.append(Line("ours", ours.label, f"{len(draws)} draws of the shots", *mean_and_deviation(rows)))
        published = published_row(group[0])
        if published:
            p = published
            values = curve_values(p.accuracy, p.base, p.new, p.harmonic_mean, sessions)
            values[sessions] = p.pd  # as printed
            lines.append(Line("paper", "paper", p.augmentation, values, [None] * len(values)))
            # The paper's base, new and HM are means over classes, ours are per sample: shown, but not subtracted.
            compared = [None if i > sessions + 1 else v for i, v in enumerate(values)]
            gap = [None if a is None or b is None else a - b for a, b in zip(ours.values, compared, strict=True)]
            lines.append(Line("difference", "difference", "", gap, [None] * len(gap)))
    return lines


def our_line(group: Sequence[Result], sessions: int, name_benchmark: bool) -> Line:
    rows = [curve_values(r.accuracy, r.base, r.new, r.harmonic_mean, sessions) for r in group]
    detail = f"{group[0].benchmark}, {description(group)}" if name_benchmark else description(group)
    return Line("ours", name_of(group[0]), detail, *mean_and_deviation(rows))


def name_of(result: Result) -> str:
    return result.preset or result.method


def published_row(result: Result) -> paper.Row | None:
    return paper.find(result.benchmark, result.method, result.augmentation, result.classes_per_session)


def description(group: Sequence[Result]) -> str:
    """What tells a line from the others: augmentation, weights, typed settings, and how many runs it is made of."""
    first = group[0]
    typed = [word for word in first.command.split() if TYPED.fullmatch(word)]
    weights = [] if first.weights in ("", "none") else [first.weights]
    several = "seeds" if len({r.seed for r in group}) == len(group) else "runs"
    runs = f"seed {first.seed}" if len(group) == 1 else f"{len(group)} {several}"
    return ", ".join([first.augmentation, *weights, *typed, runs])


def curve_values(accuracy: Sequence[float], base: Value, new: Value, hm: Value, sessions: int) -> list[Value]:
    padding = [None] * (sessions - len(accuracy))
    return [*accuracy, *padding, accuracy[0] - accuracy[-1], statistics.fmean(accuracy), base, new, hm]


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
    """Whether a difference speaks for us: PD is the one column where less is better."""
    return difference < 0 if column == "PD" else difference > 0


def session_table(results: Sequence[Result]) -> Table:
    """For the terminal; deviations stand below their means, to keep the table narrow.

    It has its natural width whatever the terminal's, since no number may be lost: print it with crop=False.
    """
    names = column_names(results)
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, title=Text(", ".join(benchmarks(results))))
    table.add_column("method", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for line in table_lines(results):
        if line.kind == "ours":
            table.add_section()
        style = {"ours": "", "paper": "dim", "difference": "dim italic"}[line.kind]
        cells: list[Text] = []
        for name, value, deviation in zip(names, line.values, line.deviations, strict=True):
            cell = Text(number(value, signed=line.kind == "difference"))
            if deviation is not None:
                cell.append(f"\n±{deviation:.2f}", style="dim")
            if line.kind == "difference" and value is not None and round(value, 2):
                cell.stylize("green" if is_gain(name, value) else "red")
            cells.append(cell)
        label = Text(line.label, style="bold" if line.kind == "ours" else "")
        label.append(f"\n{line.detail}" if line.kind == "ours" else f" {line.detail}".rstrip(), style="dim")
        table.add_row(label, *cells, style=style)
    return at_natural_width(table)


def at_natural_width(table: Table) -> Table:
    """However narrow the terminal is, no number may be lost; to be printed with crop=False."""
    table.width = Measurement.get(unbounded := Console(width=10_000), unbounded.options, table).maximum
    return table


def markdown_table(results: Sequence[Result]) -> str:
    """For a README: the same lines as the terminal's table."""
    names = column_names(results)
    rows = [["method", *names], ["---", *["---:"] * len(names)]]
    for line in table_lines(results):
        signed = line.kind == "difference"
        cells = [number(value, signed) for value in line.values]
        cells = [c if d is None else f"{c} ± {d:.2f}" for c, d in zip(cells, line.deviations, strict=True)]
        label = f"{line.label} ({line.detail})" if line.detail else line.label
        label = label.replace("|", "\\|")
        rows.append([f"**{label}**" if line.kind == "ours" else f"_{label}_", *cells])
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def benchmarks(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(result.benchmark for result in results))
