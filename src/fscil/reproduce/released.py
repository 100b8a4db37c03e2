"""What the released code's departures from the paper are worth: `limit-released`, one of them undone in each row."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from fscil import grid, runs
from fscil.config import check_overrides, split_override
from fscil.errors import UserError

TITLE = "The released code on CIFAR100: departures from the paper undone"
BENCHMARK, PRESET = "cifar100", "limit-released"
RELEASED, ONCE = "released", "recursion=1"
NOTHING = "nothing"  # undone: what the tables call the released code itself
UNDONE: dict[str, tuple[str, ...]] = {  # row -> its settings
    RELEASED: (),
    ONCE: ("recursion=1",),
    "placeholders=false": ("placeholders=false",),
    "refresh_every=0": ("refresh_every=0",),
    "augmented_steps=0": ("augmented_steps=0",),
    "logits=inner": ("logits=inner",),
    "halve_every=1000": ("halve_every=1000", "meta_milestones="),
    "dropout=0.5": ("dropout=0.5", "recursion=1"),
    "tasks=fake": ("tasks=fake", "recursion=1"),
}
AGAINST = {row: ONCE if row in ("dropout=0.5", "tasks=fake") else RELEASED for row in UNDONE}  # these exclude recursion
WHAT = {
    ONCE: "a query is calibrated once",
    "placeholders=false": "classes to come take no part in attention",
    "refresh_every=0": "rows of base classes learn, and never become class means",
    "augmented_steps=0": "images are augmented to the end",
    "logits=inner": "inner products in place of cosines",
    "halve_every=1000": "rates fall as the paper has it",
    "dropout=0.5": "dropout in the calibrator",
    "tasks=fake": "Algorithm 1, with two phases",
}


def reproduce(
    seeds: Sequence[int], overrides: Sequence[str], environment: runs.RunEnvironment, out: Console, progress: Console
) -> None:
    jobs = grid.build_jobs(BENCHMARK, rows_with(overrides), seeds, prefix="released")
    groups = grid.run_grid(jobs, environment, progress)
    out.print(TITLE, style="italic")
    out.print(grid.terminal(cells(groups)), crop=False)


def rows_with(overrides: Sequence[str]) -> list[grid.Row]:
    check_overrides([PRESET], BENCHMARK, overrides)
    own = {split_override(setting)[0] for settings in UNDONE.values() for setting in settings}
    if both := own & {split_override(override)[0] for override in overrides}:
        raise UserError(f"this table itself sets {min(both)}; leave that out, or use `fscil run`")
    return [grid.Row(name, PRESET, (*overrides, *settings)) for name, settings in UNDONE.items()]


def cells(groups: grid.Groups) -> list[list[str]]:
    """Means over the seeds, and what undoing a departure changes in pairs of the same seed."""
    lines = [["undone", "last", "average", "HM", "area", "against", "Δ last", "Δ area"]]
    for name, results in groups.items():
        means = [
            grid.mean_and_deviation([getattr(result, key) for result in results])
            for key in ("last", "average", "harmonic_mean", "area")
        ]
        other = AGAINST[name]
        gaps = [grid.difference(results, groups[other], key) for key in ("last", "area")]
        if name == RELEASED:
            lines.append([NOTHING, *means, "", "", ""])
        else:
            lines.append([f"{name}: {WHAT[name]}", *means, NOTHING if other == RELEASED else other, *gaps])
    return lines
