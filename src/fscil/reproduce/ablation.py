"""Table "Ablation study on CIFAR100": from finetuning to LIMIT in five rows that share their encoders."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console

from fscil import grid, paper, runs
from fscil.config import check_overrides, overrides_of, split_override
from fscil.errors import UserError

TITLE = "Ablation on CIFAR100: prototypes, calibration, 1 and C fake phases"

SHARED = ("recipe=paper",)  # the pre-training of `limit`, so that all rows of a seed share one encoder
ROWS = (  # named as in paper.toml
    grid.Row("finetune", "finetune"),
    grid.Row("prototype", "decoupled-cosine"),
    grid.Row("calibration", "limit", ("tasks=plain",)),
    grid.Row("meta-1", "limit", ("fake_phases=1",)),
    grid.Row("meta-c", "limit"),
)


def reproduce(
    seeds: Sequence[int], overrides: Sequence[str], environment: runs.RunEnvironment, out: Console, progress: Console
) -> None:
    jobs = grid.build_jobs("cifar100", rows_with(overrides), seeds, prefix="ablation")
    groups = grid.run_grid(jobs, environment, progress)
    out.print(TITLE, style="italic")
    out.print(grid.terminal(session_cells(groups)), crop=False)
    out.print("\nAgainst the row above, in pairs of the same seed (± standard error)", style="italic")
    out.print(grid.terminal(step_cells(groups)), crop=False)


def rows_with(overrides: Sequence[str]) -> list[grid.Row]:
    """The five rows with the typed overrides, except those that a row itself sets."""
    check_overrides([row.preset for row in ROWS], "cifar100", overrides)
    typed = keys_of(overrides)
    if "tasks" in typed:
        raise UserError("the ablation itself sets tasks; leave that out, or use `fscil run`")
    rows = []
    for row in ROWS:
        shared = [setting for setting in SHARED if not keys_of([setting]) & typed]
        known = overrides_of(row.preset, "cifar100", overrides)
        kept = [override for override in known if not keys_of([override]) & keys_of(row.settings)]
        rows.append(grid.Row(row.name, row.preset, (*shared, *kept, *row.settings)))
    return rows


def keys_of(overrides: Sequence[str]) -> set[str]:
    return {split_override(override)[0] for override in overrides}


def session_cells(groups: grid.Groups) -> list[list[str]]:
    """Accuracy per session and PD, ours (means over the seeds) above the paper's."""
    published = paper.ablation()
    lines = [["row", *map(str, range(len(published["meta-c"]))), "PD"]]
    for name, results in groups.items():
        curves = [[*result.accuracy, result.pd] for result in results]
        seeds = "1 seed" if len(results) == 1 else f"{len(results)} seeds"
        lines.append([f"{name}, {seeds}", *(f"{statistics.fmean(column):.2f}" for column in zip(*curves, strict=True))])
        theirs = published[name]
        lines.append(["  paper", *(f"{value:.2f}" for value in (*theirs, theirs[0] - theirs[-1]))])
    return lines


def step_cells(groups: grid.Groups) -> list[list[str]]:
    """Last session and area of every row, and what it adds to the row above; for the last session the paper's, too."""
    published = paper.ablation()
    above = {after: before for before, after in pairwise(groups)}
    lines = [["row", "last", "area", "last - above", "paper's", "area - above"]]
    for name, results in groups.items():
        line = [name, *(grid.mean_and_deviation([getattr(r, key) for r in results]) for key in ("last", "area"))]
        if before := above.get(name):
            last, area = (grid.difference(results, groups[before], key) for key in ("last", "area"))
            lines.append([*line, last, f"{published[name][-1] - published[before][-1]:+.2f}", area])
        else:
            lines.append([*line, "", "", ""])
    return lines
