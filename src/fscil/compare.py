"""Several methods on one benchmark over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from fscil import distributed, runs
from fscil.config import check_overrides, overrides_of, resolve
from fscil.report.curve import write_curve
from fscil.report.html import write_report
from fscil.results import Result, paired_difference


@dataclass(frozen=True)
class Comparison:
    results: list[Result]
    lines: list[str]  # what stands under the table


def compare(
    benchmark: str,
    presets: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str],
    where: runs.RunEnvironment,
    console: Console,
) -> Comparison:
    """Run every method with every seed; finished runs in the folder are read, interrupted ones resumed."""
    presets = list(dict.fromkeys(preset.strip() for preset in presets))
    check_overrides(presets, benchmark, overrides)
    configs = [
        resolve(preset, benchmark, overrides_of(preset, benchmark, overrides), seed)
        for seed in seeds
        for preset in presets
    ]
    folders = [where.folder / f"{benchmark}-{config.preset}-seed{config.seed}" for config in configs]
    results = []
    for config, folder in zip(configs, folders, strict=True):
        console.print(f"{config.preset} on {benchmark}, seed {config.seed}")
        results.append(runs.finish(config, replace(where, folder=folder), console))
    results.sort(key=lambda result: presets.index(result.preset))
    distributed.broadcast(lambda: write_curve(results, where.folder / "curve.png"))
    report = distributed.broadcast(lambda: write_report(results, where.folder / "report.html"))
    return Comparison(results, [*differences(results), *notes(results), *places(where, folders[0], report)])


def differences(results: Sequence[Result]) -> list[str]:
    """The first method against each other one, over the same seeds."""
    first = results[0].preset
    mine = [result for result in results if result.preset == first]
    lines = []
    for other in dict.fromkeys(result.preset for result in results if result.preset != first):
        theirs = [result for result in results if result.preset == other]
        for key, name in (("last", "last session"), ("harmonic_mean", "harmonic mean")):
            if any(getattr(result, key) is None for result in (*mine, *theirs)):
                continue  # nothing new was tested
            mean, error, n = paired_difference(mine, theirs, key)
            spread = f" ± {error:.2f} (paired standard error, {n} seeds)" if n > 1 else " (one seed)"
            lines.append(f"{first} - {other}, {name}: {mean:+.2f}{spread}")
    return lines


def notes(results: Sequence[Result]) -> list[str]:
    return [f"note: {note}" for note in dict.fromkeys(result.note for result in results if result.note)]


def places(where: runs.RunEnvironment, first: Path, report: Path) -> list[str]:
    return [f"model   {first / 'model'}", f"curve   {where.folder / 'curve.png'}", f"report  {report}"]
