"""Several methods on one benchmark over several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from rich.console import Console

from fscil import distributed, grid, methods, paper, runs
from fscil.config import Config, check_overrides, overrides_of, resolve, split_override
from fscil.errors import UserError
from fscil.files import check_replaceable
from fscil.naming import choose, quotable
from fscil.pairing import different_embedding, paired_lines, same_embedding, unlike_encoders
from fscil.report.curve import write_curve
from fscil.report.html import write_report
from fscil.results import Result
from fscil.table_lines import LIMIT

MOST_PAIRED = 4  # methods


@dataclass(frozen=True)
class Comparison:
    results: list[Result]
    above: list[str]  # printed above the table
    lines: list[str]  # printed under it


def compare(
    benchmark: str,
    presets: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str],
    environment: runs.RunEnvironment,
    console: Console,
) -> Comparison:
    """Run every method with every seed; finished runs in the folder are read, interrupted ones resumed.

    A method may have settings of its own, as in limit:augmentation=basic; `all` stands for every method, pre-trained as
    `limit` is, and once more with the other augmentation where the paper has rows for both. -NAME leaves a method out,
    with all of its rows or, as -limit:augmentation=basic, with a single one.
    """
    rows = rows_of(benchmark, presets, overrides)
    jobs = grid.build_jobs(benchmark, rows, seeds, prefix=benchmark)
    for name in ("curve.png", "report.html"):
        distributed.broadcast(lambda name=name: check_replaceable(environment.folder / name))  # type: ignore[misc]
    groups = grid.run_grid(jobs, environment, console)
    results = [result for group in groups.values() for result in group]
    folder = environment.folder
    distributed.broadcast(lambda: write_curve(results, folder / "curve.png"))
    distributed.broadcast(lambda: write_report(results, folder / "report.html", same_embedding))
    configs = {job.row: job.config for job in jobs}
    differences = [line for a, b in pairs(configs) for line in paired_lines(groups, configs, a, b)]
    behind = [*sources(jobs, folder), *places(folder, folder / jobs[0].folder)]
    return Comparison(results, unlike_encoders(configs), [*differences, *notes(results), *behind])


def rows_of(benchmark: str, entries: Sequence[str], overrides: Sequence[str]) -> list[grid.Row]:
    """One row for each of the entries NAME, NAME:KEY=VALUE and `all`, without those that -NAME takes away."""
    named = list(dict.fromkeys(entry.strip() for entry in entries))
    if "" in named:
        typed = quotable(",".join(entries))
        raise UserError(f"an empty name among the methods '{typed}'; write names separated by single commas")
    left_out = [entry.removeprefix("-") for entry in named if entry.startswith("-")]
    in_all = every_method(benchmark, overrides) if "all" in named else []
    recipe = recipe_of_limit(benchmark, overrides) if in_all else []
    found: dict[str, None] = {}
    for entry in named:
        if not entry.startswith("-"):
            found |= dict.fromkeys(in_all if entry == "all" else [entry])
    can_be_left_out = dict.fromkeys([*found, *(entry.partition(":")[0] for entry in found)])
    for name in left_out if found else []:
        choose(name, can_be_left_out, "method to leave out")
    rows = []
    for entry in found:
        preset, *own = entry.split(":")
        if preset not in left_out and entry not in left_out:
            given = [*recipe, *overrides] if entry in in_all else overrides
            settings = (*overrides_of(preset, benchmark, given), *own)
            rows.append(grid.Row(entry.replace(":", " "), preset, settings))
    if not rows:
        raise UserError("no method is left to compare; name at least one")
    check_overrides([row.preset for row in rows], benchmark, overrides)
    return rows


def every_method(benchmark: str, overrides: Sequence[str]) -> list[str]:
    """In the paper's order, then by name; where the paper has a row for either augmentation, so have we."""
    published = sorted(paper.published(benchmark), key=lambda row: row.augmentation != "basic")
    in_order, known = dict.fromkeys(row.method for row in published), methods.names()
    entries = []
    for name in [*(name for name in in_order if name in known), *(name for name in known if name not in in_order)]:
        entries.append(name)
        rows = {row.augmentation for row in published if row.method == name}
        if len(rows) > 1 and not any(split_override(override)[0] == "augmentation" for override in overrides):
            own = resolve(name, benchmark).settings["augmentation"]
            entries += [f"{name}:augmentation={other}" for other in sorted(rows - {own})]
    return entries


def recipe_of_limit(benchmark: str, overrides: Sequence[str]) -> list[str]:
    """What `all` adds to every method, so that all start from one encoder; nothing if a recipe was typed."""
    if any(split_override(override)[0] == "recipe" for override in overrides):
        return []
    return [f"recipe={resolve(LIMIT, benchmark, overrides_of(LIMIT, benchmark, overrides)).settings['recipe']}"]


def pairs(configs: Mapping[str, Config]) -> list[tuple[str, str]]:
    """Everyone with everyone else; of many, `limit`, or else the first, with everyone else.

    If that method has several rows, such as one for each augmentation, each is paired with the one on its embedding.
    """
    rows = list(configs)
    if len(rows) <= MOST_PAIRED:
        return list(combinations(rows, 2))
    first = LIMIT if LIMIT in rows else rows[0]
    its = [first, *(row for row in rows if row != first and configs[row].preset == configs[first].preset)]
    found = []
    for row in rows:
        partners = (each for each in its if each != row and not different_embedding(configs[each], configs[row]))
        if row != first:
            found.append((next(partners, first), row))
    return found


def sources(jobs: Sequence[grid.Job], folder: Path) -> list[str]:
    """The files behind the numbers, in the notation of a shell; a file that is deleted is made again."""
    seeds: dict[str, list[str]] = {}
    for job in jobs:
        stem, _, seed = job.folder.rpartition("-seed")
        seeds.setdefault(stem, []).append(seed)
    found = {stem: its[0] if len(its) == 1 else f"{{{','.join(its)}}}" for stem, its in seeds.items()}
    return [f"numbers {folder / stem}-seed{its}/result.json" for stem, its in found.items()]


def notes(results: Sequence[Result]) -> list[str]:
    """Each once, of runs that were computed before or in another process, too."""
    warnings = dict.fromkeys(warning for result in results for warning in result.warnings)
    told = dict.fromkeys(result.note for result in results if result.note)
    return [*(f"warning: {warning}" for warning in warnings), *(f"note: {note}" for note in told)]


def places(folder: Path, first_run: Path) -> list[str]:
    return [f"model   {first_run / 'model'}", f"curve   {folder / 'curve.png'}", f"report  {folder / 'report.html'}"]
