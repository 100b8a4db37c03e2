"""Table "Ablation study on CIFAR100": from finetuning to LIMIT in five rows that share their encoders."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from rich import box
from rich.console import Console
from rich.table import Column, Table

from fscil import paper, runs
from fscil.config import check_overrides, overrides_of, resolve, split_override
from fscil.errors import UserError
from fscil.results import Result
from fscil.tables import at_natural_width

TITLE = "Ablation study on CIFAR100: prototypes, calibration, one fake phase, C fake phases"

# The paper's steps, on the paper's embedding and with an encoder that learns along: what `limit` does to embeddings
# (power, mirror, whiten) is a step of its own, and leaves no common ground to trained rows and prototypes.
PLAIN = ["power=1", "mirror=false", "whiten=0"]
LEARNING = [*PLAIN, "encoder_lr=2e-4", "calibrator_lr=5e-3", "dropout=0.5", "base_margin=0"]
# row of the paper -> how it is run here
ROWS: dict[str, tuple[str, list[str]]] = {
    "finetune": ("finetune", []),
    "prototype": ("decoupled-cosine", PLAIN),
    "calibration": ("limit", [*LEARNING, "tasks=plain", "rows=trained"]),
    "meta-1": ("limit", [*LEARNING, "fake_phases=1"]),
    "meta-c": ("limit", LEARNING),
}


def reproduce(
    seeds: Sequence[int], overrides: Sequence[str], where: runs.RunEnvironment, out: Console, progress: Console
) -> None:
    check_overrides([method for method, _ in ROWS.values()], "cifar100", overrides)
    own = {split_override(setting)[0] for setting in ROWS["meta-c"][1]}  # what holds for all rows with calibration
    if clash := own & {split_override(override)[0] for override in overrides}:
        raise UserError(f"the ablation itself sets {', '.join(sorted(clash))}; leave that out, or use fscil run")
    sessions = len(paper.ablation()["meta-c"])
    numbers = [Column(name, justify="right") for name in (*map(str, range(sessions)), "PD")]
    table = Table("row", "", *numbers, title=TITLE, box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for name, (method, settings) in ROWS.items():
        rows = []
        for seed in seeds:
            config = resolve(method, "cifar100", [*overrides_of(method, "cifar100", overrides), *settings], seed)
            progress.print(f"{name}, seed {seed}")
            folder = where.folder / f"ablation-{name}-seed{seed}"
            rows.append(runs.finish(config, replace(where, folder=folder), progress))
        table.add_row(name, f"ours, {len(seeds)} seeds", *mean_row(rows))
        published = paper.ablation()[name]
        table.add_row("", "paper", *(f"{a:.2f}" for a in published), f"{published[0] - published[-1]:.2f}", style="dim")
    out.print(at_natural_width(table), crop=False)


def mean_row(results: Sequence[Result]) -> list[str]:
    columns = zip(*(result.accuracy for result in results), strict=True)
    return [f"{statistics.fmean(column):.2f}" for column in columns] + [
        f"{statistics.fmean(r.pd for r in results):.2f}"
    ]
