"""Tables of results beside the paper's numbers: the lines, and how the terminal and Markdown show them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fscil import paper
from fscil.labels import (
    LONGEST,
    Labels,
    by_benchmark,
    footnotes,
    labels,
    margin_in_words,
    repetitions,
    runs_in_words,
)

if TYPE_CHECKING:
    from fscil.results import Result

Value = float | None
SUMMARY = ("PD", "average", "base", "new", "HM", "area")
OVER_ALL_MARGINS = {
    "base_among_base": "base only",
    "new_among_new": "new only",
    "best_harmonic_mean": "best HM",
    "best_last": "best last",
}
ROOM = 80  # characters across a terminal
MOST_MARKDOWN_COLUMNS = 9  # beyond that the summary gets a table of its own
WORDS = "PD: first session minus last. HM: harmonic mean of base and new."
WORDS_ON_MARGINS = (
    "Margin: subtracted from base classes' scores. Area: under the curve of new over base accuracy as the margin takes "
    "every value. Base only, new only: its ends, accuracy with only base or only new classes to choose from. Best HM, "
    "best last session: the best on it."
)


@dataclass(frozen=True)
class Line:
    """One line of a table, with a value for every column: the sessions (None beyond the last), then the summary."""

    kind: Literal["ours", "margin zero", "draws", "paper", "difference"]
    label: str
    detail: str
    values: list[Value]
    deviations: list[Value]  # standard deviations, None where only one value is known


def column_names(results: Sequence[Result]) -> list[str]:
    """Sessions and summary; runs of earlier versions have no area."""
    sessions = range(max((len(r.accuracy) for r in results), default=0))
    return [*map(str, sessions), *(SUMMARY if has_area(results) else SUMMARY[:-1])]


def has_area(results: Sequence[Result]) -> bool:
    return any(result.area is not None for result in results)


def session_count(names: Sequence[str]) -> int:
    return len([name for name in names if name not in SUMMARY])


def table_lines(results: Sequence[Result]) -> list[Line]:
    """For every method: ours (mean and standard deviation over its seeds), the paper's line and the difference."""
    names = column_names(results)
    sessions, groups = session_count(names), repetitions(results)
    lines: list[Line] = []
    for group, label in zip(groups, labels(groups).each, strict=True):
        rows = [line_values(r.accuracy, r.base, r.new, r.harmonic_mean, r.area, names) for r in group]
        ours = Line("ours", label.text, detail(group), *mean_and_deviation(rows))
        lines.append(ours)
        if margin_in_words(group):
            at_zero = [(result.margin_zero, result.area) for result in group]
            rows = [
                line_values(z["accuracy"], z["base"], z["new"], z["harmonic_mean"], area, names)
                for z, area in at_zero
                if z
            ]
            if rows:
                lines.append(Line("margin zero", "margin 0", "", *mean_and_deviation(rows)))
        draws = [trial for result in group for trial in result.trials]
        if len(draws) > 1:
            rows = [line_values(t["accuracy"], None, None, t["harmonic_mean"], t["area"], names) for t in draws]
            lines.append(Line("draws", f"{len(draws)} draws of shots", "", *mean_and_deviation(rows)))
        published = published_row(group[0])
        if published:
            p = published
            values = line_values(p.accuracy, p.base, p.new, p.harmonic_mean, None, names)
            values[sessions] = p.pd  # as printed
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
    accuracy: Sequence[float], base: Value, new: Value, hm: Value, area: Value, names: Sequence[str]
) -> list[Value]:
    padding = [None] * (session_count(names) - len(accuracy))
    values = [*accuracy, *padding, accuracy[0] - accuracy[-1], statistics.fmean(accuracy), base, new, hm, area]
    return values[: len(names)]


def lines_over_all_margins(results: Sequence[Result]) -> list[Line]:
    """For every method: the ends of its curve of new over base accuracy, and the best on it."""
    groups = repetitions(results)
    lines = []
    for group, label in zip(groups, labels(groups).each, strict=True):
        rows = [[getattr(result, key) for key in OVER_ALL_MARGINS] for result in group]
        if has_area(group):
            lines.append(Line("ours", label.text, runs_in_words(group), *mean_and_deviation(rows)))
    return lines


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


def session_table(results: Sequence[Result]) -> RenderableType:
    """For the terminal: a table for every benchmark, in blocks that fit into 80 columns.

    On a terminal narrower than that, print it with crop=False, so that no number is lost.
    """
    if not results:
        return Text("no results")
    parts: list[RenderableType] = []
    for title, those in by_benchmark(results).items():
        names, lines = column_names(those), table_lines(those)
        for block in blocks(names, lines):
            has_sessions, has_summary = names[block[0]] not in SUMMARY, names[block[-1]] in SUMMARY
            what = ["accuracy (%) after each session"] * has_sessions + ["summary"] * has_summary
            parts += [Text(f"{title}: {', '.join(what)}", style="bold"), terminal_block(names, lines, block), Text()]
        if has_area(those):
            names, lines = [*OVER_ALL_MARGINS.values()], lines_over_all_margins(those)
            parts += [Text(f"{title}: whatever the margin", style="bold")]
            parts += [terminal_block(names, lines, range(len(names))), Text()]
        parts += notes_below(those)
    several = any(len(group) > 1 for group in repetitions(results))
    words = [
        WORDS,
        *([WORDS_ON_MARGINS] if has_area(results) else []),
        *(["±: standard deviation."] if several else []),
    ]
    return Group(*parts, Text("\n".join(words), style="dim"))


def blocks(names: Sequence[str], lines: Sequence[Line]) -> list[range]:
    """Which columns form one block: all of them if there is room, otherwise first the sessions, then the summary."""
    room = ROOM - max(len(text) for line in lines for text in ("method", *label_lines(line)))
    # every column begins with a space
    widths = [1 + max(len(text) for line in lines for text in (name, *cell(line, i))) for i, name in enumerate(names)]
    if sum(widths) <= room:
        return [range(len(names))]
    sessions = session_count(names)
    count = -(-sessions // max(1, room // max(widths[:sessions])))
    edges = [round(i * sessions / count) for i in range(count + 1)]
    return [*map(range, edges, edges[1:]), range(sessions, len(names))]


def label_lines(line: Line) -> list[str]:
    """Label and detail in one line where it is not too long and no deviations need a second one."""
    joined = f"{line.label}, {line.detail}" if line.detail else line.label
    below = any(deviation is not None for deviation in line.deviations) or len(joined) > LONGEST
    return [line.label, line.detail] if below and line.detail else [joined]


def terminal_block(names: Sequence[str], lines: Sequence[Line], block: Sequence[int]) -> Table:
    """Deviations are below their means, to keep the table narrow."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("method", no_wrap=True)
    for i in block:
        table.add_column(names[i], justify="right", no_wrap=True)
    for line in lines:
        if line.kind == "ours":
            table.add_section()
        label = Text("\n".join(label_lines(line)))
        label.stylize("bold" if line.kind == "ours" else "", 0, len(line.label))
        cells: list[Text] = []
        for i in block:
            text, spread = cell(line, i)
            found = Text(text).append(f"\n{spread}" if spread else "", style="dim")
            value = line.values[i]
            if line.kind == "difference" and value is not None and round(value, 2):
                found.stylize("green" if is_gain(names[i], value) else "red")
            cells.append(found)
        table.add_row(label, *cells, style="dim" if line.kind in ("paper", "difference") else "")
    return at_natural_width(table)


def at_natural_width(table: Table) -> Table:
    """However narrow the terminal is, no number may be lost; to be printed with crop=False."""
    table.width = Measurement.get(unbounded := Console(width=10_000), unbounded.options, table).maximum
    return table


def notes_below(results: Sequence[Result]) -> list[Table]:
    table = Table.grid(padding=(0, 1))
    for mark, text in [*notes(labels(repetitions(results))), *weights_notes(results)]:
        table.add_row(Text(mark, style="dim"), Text(text, style="dim"))
    return [table] if table.row_count else []


def notes(found: Labels) -> list[tuple[str, str]]:
    """What the letters stand for, and what all runs have in common."""
    mark = "all:" if len(found.each) > 1 else "settings:"
    return [*footnotes(found), *([(mark, ", ".join(found.shared))] if found.shared else [])]


def weights_notes(results: Sequence[Result]) -> list[tuple[str, str]]:
    """Pre-trained weights with their checksums."""
    used = dict.fromkeys(result.weights for result in results if result.weights not in ("", "none"))
    return [("weights:", weights) for weights in used]


def markdown_table(results: Sequence[Result]) -> str:
    """For a README: the same lines as the terminal's table. Many columns become two tables, sessions and summary."""
    parts: list[str] = []
    for title, those in by_benchmark(results).items():
        names, lines = column_names(those), table_lines(those)
        sessions, columns = session_count(names), len(names)
        together = columns <= MOST_MARKDOWN_COLUMNS
        if len(by_benchmark(results)) > 1:
            parts.append(f"**{plain(title)}**\n")
        for block in [range(columns)] if together else [range(sessions), range(sessions, columns)]:
            parts.append(markdown_block(names, lines, block))
        if has_area(those):
            names, lines = [*OVER_ALL_MARGINS.values()], lines_over_all_margins(those)
            parts += ["Whatever the margin:\n", markdown_block(names, lines, range(len(names)))]
        all_notes = [*notes(labels(repetitions(those))), *weights_notes(those)]
        parts += [f"{mark} {plain(text)}\n" for mark, text in all_notes]
    return "\n".join(parts)


def markdown_block(names: Sequence[str], lines: Sequence[Line], block: Sequence[int]) -> str:
    rows = [["method", *(names[i] for i in block)], ["---", *["---:"] * len(block)]]
    for line in lines:
        cells = [" ".join(cell(line, i)).rstrip().replace("±", "± ") for i in block]
        label = plain(f"{line.label} ({line.detail})" if line.detail else line.label)
        rows.append([f"**{label}**" if line.kind == "ours" else f"_{label}_", *cells])
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def plain(text: str) -> str:
    """Text escaped so that Markdown shows it literally, even in a table."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", text)
