"""Tables of results beside the paper's numbers, for the terminal and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fscil.labels import LONGEST, Labels, by_benchmark, footnotes, labels, repetitions
from fscil.table_lines import (
    COSTS,
    OVER_ALL_MARGINS,
    RELATIVE,
    SUMMARY,
    Line,
    cell,
    column_names,
    costs,
    has_area,
    is_gain,
    lines_over_all_margins,
    session_count,
    table_lines,
)

if TYPE_CHECKING:
    from fscil.results import Result

ROOM = 80  # characters across a terminal
MOST_MARKDOWN_COLUMNS = 10  # beyond that the summary gets a table of its own
WORDS = "PD: first session minus last. HM: harmonic mean of base and new."
WORDS_ON_LIMIT = f"{RELATIVE}: PD minus that of `limit`, the paper's relative improvement."
WORDS_ON_MARGINS = (
    "Margin: subtracted from base classes' scores. Area: under the curve of new over base accuracy as the margin takes "
    "every value. Base only, new only: its ends, accuracy with only base or only new classes to choose from. Best HM, "
    "best last session: the best on it."
)


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
        if len(repetitions(those)) > 1:
            parts += [Text(f"{title}: cost of a run", style="bold"), terminal_costs(those), Text()]
        parts += notes_below(those)
    several = any(len(group) > 1 for group in repetitions(results))
    words = [
        WORDS,
        *([WORDS_ON_LIMIT] if any(RELATIVE in column_names(those) for those in by_benchmark(results).values()) else []),
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
    return [*fitting(range(sessions), widths, room), *fitting(range(sessions, len(names)), widths, room)]


def fitting(columns: range, widths: Sequence[int], room: int) -> list[range]:
    """The columns in one block if there is room, otherwise in several with about the same number of them."""
    own = widths[columns.start : columns.stop]
    count = 1 if sum(own) <= room else -(-len(own) // max(1, room // max(own)))
    edges = [columns.start + round(i * len(own) / count) for i in range(count + 1)]
    return [*map(range, edges, edges[1:])]


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


def terminal_costs(results: Sequence[Result]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("method", no_wrap=True)
    for name in COSTS:
        table.add_column(name, justify="right", no_wrap=True)
    for label, cells in costs(results):
        table.add_row(Text(label, style="bold"), *cells)
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
        if len(repetitions(those)) > 1:
            parts += ["Cost of a run:\n", markdown_costs(those)]
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


def markdown_costs(results: Sequence[Result]) -> str:
    rows = [["method", *COSTS], ["---", *["---:"] * len(COSTS)]]
    rows += [[f"**{plain(label)}**", *cells] for label, cells in costs(results)]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def plain(text: str) -> str:
    """Text escaped so that Markdown shows it literally, even in a table."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", text)
