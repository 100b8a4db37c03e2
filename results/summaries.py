"""The committed results, and what the blocks compute from them: means, paired differences, tables and phrases."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fscil import grid
from fscil.errors import UserError
from fscil.pairing import at_zero
from fscil.results import Measure, Result, measured_by, paired_difference, read_result

FOLDER = Path(__file__).resolve().parent
CLEAR = 2.0  # standard errors from which on a difference is called a gain or a loss
SUMMARY = {
    "pd": "PD", "average": "average", "base": "base", "new": "new", "harmonic_mean": "HM", "area": "area",
}  # fmt: skip
IN_WORDS = {"area": "area", "last": "last-session accuracy", "harmonic_mean": "harmonic mean"}

Results = Sequence[Result]
Runs = Mapping[str, Results]  # by name, one result for each seed


def load(folder: str, names: Iterable[str]) -> Runs:
    """By name: the results whose files are results/FOLDER/NAME-seedN.json, all of the same seeds."""
    found = {name: read(FOLDER / folder, name) for name in names}
    seeds = {name: [result.seed for result in results] for name, results in found.items()}
    first = next(iter(seeds))
    for name, its in seeds.items():
        if its != seeds[first]:
            raise UserError(f"results/{folder}: {first} has seeds {seeds[first]}, but {name} has {its}; run the others")
    return found


@cache
def read(folder: Path, name: str) -> list[Result]:
    paths = sorted(folder.glob(f"{name}-seed*.json"))
    if not paths:
        raise UserError(f"results/{folder.name}/{name}-seed*.json: no such file; put that run's result.json there")
    results = sorted(map(read_result, paths), key=lambda result: result.seed)
    if any(result.area is None or result.margin_zero is None for result in results):
        raise UserError(f"results/{folder.name}/{name}-seed*.json: made by an older fscil, without an area; run again")
    return results


def values(results: Results, key: str | Measure) -> list[float]:
    """One for every seed; none at all if a seed has none, since that would bias the mean of the others."""
    found = [measured_by(key)(result) for result in results]
    known = [value for value in found if value is not None]
    return known if len(known) == len(found) else []


def mean(results: Results, key: str | Measure) -> float:
    return statistics.fmean(values(results, key))


def spread(results: Results, key: str | Measure) -> str:
    """Mean and standard deviation over the seeds."""
    return grid.mean_and_deviation(values(results, key))


def seeds(results: Results) -> str:
    return "1 seed" if len(results) == 1 else f"{len(results)} seeds"


def same_seeds(results: Results, others: Results) -> Results:
    known = {result.seed for result in others}
    return [result for result in results if result.seed in known]


def margin(results: Results) -> str:
    return f"{results[0].margin or 0:g}"


def has_margin(results: Results) -> bool:
    return bool(results[0].margin)


def margin_adds(results: Results, key: str) -> str:
    """What the runs' margin changes in a value."""
    return f"{mean(results, key) - mean(results, at_zero(key)):+.2f}"


def difference(a: Results, b: Results, key: str | Measure) -> str:
    """In pairs of the same seed, with its standard error; a dash if a seed has no value."""
    return grid.difference(a, b, key) if values(a, key) and values(b, key) else "–"


def sign(a: Results, b: Results, key: str | Measure) -> int:
    """1 if a is clearly above b, -1 if clearly below, else 0."""
    gap, error, n = paired_difference(a, b, key)
    if n > 1 and abs(gap) <= CLEAR * error:
        return 0
    return (gap > 0) - (gap < 0)


def compared(a: Results, b: Results, key: str) -> str:
    """What stands between "A" and "B" in a sentence, for instance "gains 0.98 ± 0.10 of area over"."""
    size, which = difference(a, b, key), sign(a, b, key)
    if not which:
        return f"is level in {IN_WORDS[key]} ({size}) with"
    return f"gains {size[1:]} of {IN_WORDS[key]} over" if which > 0 else f"loses {size[1:]} of {IN_WORDS[key]} to"


def points(gap: float) -> str:
    return f"{abs(gap):.2f} points {'above' if gap > 0 else 'below'}"


def listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def paragraph(text: str) -> str:
    """Text in lines of equal length; a list item keeps its indent."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(" ".join(text.split()), 118, subsequent_indent=indent, break_on_hyphens=False) + "\n"


# tables over all sessions


def own_lines(label: str, results: Results) -> list[list[str]]:
    """A line of means, a line of standard deviations below it, and both for margin 0 as well if theirs is another."""
    lines = deviations_below(f"{label}, margin {margin(results)}" if has_margin(results) else label, map(vars, results))
    if has_margin(results):
        without = [{**(result.margin_zero or {}), "area": result.area} for result in results]
        lines += deviations_below("with margin 0", without)
    return lines


def deviations_below(label: str, numbers: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    rows = [[*each["accuracy"], *(each[key] for key in SUMMARY)] for each in numbers]
    columns = [*zip(*rows, strict=True)]
    lines = [[label, *(f"{statistics.fmean(column):.2f}" for column in columns)]]
    if len(rows) > 1:
        lines.append(["", *(f"±{statistics.stdev(column):.2f}" for column in columns)])
    return lines


def paper_line(label: str, accuracy: Sequence[float], pd: float) -> list[list[str]]:
    """PD as printed; what follows the average is not in the paper."""
    shown = [*accuracy, pd, statistics.fmean(accuracy)]
    return [[label, *(f"{value:.2f}" for value in shown), *[""] * (len(SUMMARY) - 2)]]


def session_table(*parts: list[list[str]]) -> str:
    sessions = len(parts[0][0]) - 1 - len(SUMMARY)
    header = ["", *map(str, range(sessions)), *SUMMARY.values()]
    return grid.markdown([header, *(line for part in parts for line in part)])
