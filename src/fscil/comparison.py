"""Several methods on one benchmark over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from rich.console import Console

from fscil import distributed, grid, runs
from fscil.config import check_overrides, overrides_of
from fscil.files import check_replaceable
from fscil.pairing import paired_lines, same_embedding
from fscil.report.curve import write_curve
from fscil.report.html import write_report
from fscil.results import Result


@dataclass(frozen=True)
class Comparison:
    results: list[Result]
    lines: list[str]  # printed under the table


def compare(
    benchmark: str,
    presets: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str],
    environment: runs.RunEnvironment,
    console: Console,
) -> Comparison:
    """Run every method with every seed; finished runs in the folder are read, interrupted ones resumed."""
    presets = list(dict.fromkeys(preset.strip() for preset in presets))
    check_overrides(presets, benchmark, overrides)
    rows = [grid.Row(preset, preset, tuple(overrides_of(preset, benchmark, overrides))) for preset in presets]
    jobs = grid.build_jobs(benchmark, rows, seeds, prefix=benchmark)
    for name in ("curve.png", "report.html"):
        distributed.broadcast(lambda name=name: check_replaceable(environment.folder / name))  # type: ignore[misc]
    groups = grid.run_grid(jobs, environment, console)
    results = [result for group in groups.values() for result in group]
    folder = environment.folder
    distributed.broadcast(lambda: write_curve(results, folder / "curve.png"))
    distributed.broadcast(lambda: write_report(results, folder / "report.html", same_embedding))
    configs = {job.row: job.config for job in jobs}
    differences = [line for a, b in combinations(groups, 2) for line in paired_lines(groups, configs, a, b)]
    return Comparison(results, [*differences, *notes(results), *places(folder, folder / jobs[0].folder)])


def notes(results: Sequence[Result]) -> list[str]:
    return [f"note: {note}" for note in dict.fromkeys(result.note for result in results if result.note)]


def places(folder: Path, first_run: Path) -> list[str]:
    return [f"model   {first_run / 'model'}", f"curve   {folder / 'curve.png'}", f"report  {folder / 'report.html'}"]
