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

# The paper's steps, on the paper's embedding and with an encoder that keeps learning. What `limit` does to embeddings
# (power, mirror, whiten) would be a separate step, after which trained rows cannot be compared with prototypes.
PLAIN = ("power=1", "mirror=false", "whiten=0")
LEARNING = (*PLAIN, "encoder_lr=2e-4", "calibrator_lr=5e-3", "dropout=0.5", "base_margin=0")
ROWS = (  # named as in paper.toml
    grid.Row("finetune", "finetune"),
    grid.Row("prototype", "decoupled-cosine", PLAIN),
    grid.Row("calibration", "limit", (*LEARNING, "tasks=plain", "rows=trained")),
    grid.Row("meta-1", "limit", (*LEARNING, "fake_phases=1")),
    grid.Row("meta-c", "limit", LEARNING),
)


def reproduce(
    seeds: Sequence[int], overrides: Sequence[str], environment: runs.RunEnvironment, out: Console, progress: Console
) -> None:
    jobs = grid.build_jobs("cifar100", rows_with(overrides), seeds, prefix="ablation")
    groups = grid.run_grid(jobs, environment, progress)
    out.print(TITLE, style="italic")
    out.print(grid.terminal(cells(groups)), crop=False)
    for before, after in pairwise(groups):
        for line in grid.difference_lines(groups, after, before):
            out.print(line, soft_wrap=True)


def rows_with(overrides: Sequence[str]) -> list[grid.Row]:
    """The five rows with the typed overrides, except those that a row itself sets."""
    check_overrides([row.preset for row in ROWS], "cifar100", overrides)
    own = {split_override(setting)[0] for setting in LEARNING}
    if clash := own & {split_override(override)[0] for override in overrides}:
        raise UserError(f"the ablation itself sets {', '.join(sorted(clash))}; leave that out, or use `fscil run`")
    rows = []
    for row in ROWS:
        fixed = {split_override(setting)[0] for setting in row.settings}
        known = overrides_of(row.preset, "cifar100", overrides)
        typed = [override for override in known if split_override(override)[0] not in fixed]
        rows.append(grid.Row(row.name, row.preset, (*typed, *row.settings)))
    return rows


def cells(groups: grid.Groups) -> list[list[str]]:
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
