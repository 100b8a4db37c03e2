"""Table "Ablation study on CIFAR100": from finetuning to LIMIT in five rows that share their encoders."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from fscil import methods, paper, runs
from fscil.config import resolve
from fscil.results import Result
from fscil.settings import fields_of

TITLE = "Ablation study on CIFAR100: prototypes, calibration, one fake phase, C fake phases"

# row of the paper -> how it is run here
ROWS: dict[str, tuple[str, list[str]]] = {
    "finetune": ("finetune", []),
    "prototype": ("decoupled-cosine", []),
    "calibration": ("limit", ["tasks=plain", "rows=trained"]),
    "meta-1": ("limit", ["fake_phases=1"]),
    "meta-c": ("limit", []),
}


def reproduce(seeds: int, overrides: Sequence[str], where: runs.Where, out: Console, progress: Console) -> None:
    sessions = len(paper.ablation()["meta-c"])
    table = Table("row", "", *(str(i) for i in range(sessions)), "PD", title=TITLE)
    for name, (method, settings) in ROWS.items():
        rows = []
        for seed in range(1, seeds + 1):
            config = resolve(method, "cifar100", [*settings, *own(method, overrides)], seed)
            progress.print(f"{name}, seed {seed}")
            folder = where.folder / f"ablation-{name}-seed{seed}"
            rows.append(runs.finish(config, replace(where, folder=folder), progress))
        table.add_row(name, f"ours, {seeds} seeds", *mean_row(rows))
        published = paper.ablation()[name]
        table.add_row("", "paper", *(f"{a:.2f}" for a in published), f"{published[0] - published[-1]:.2f}", style="dim")
    out.print(table, crop=False)


def own(method: str, overrides: Sequence[str]) -> list[str]:
    """Settings that only LIMIT has are not for the rows without it."""
    known = fields_of(methods.get(method).Settings)
    return [override for override in overrides if override.partition("=")[0] in known]


def mean_row(results: Sequence[Result]) -> list[str]:
    columns = zip(*(result.accuracy for result in results), strict=True)
    return [f"{statistics.fmean(column):.2f}" for column in columns] + [
        f"{statistics.fmean(r.pd for r in results):.2f}"
    ]
