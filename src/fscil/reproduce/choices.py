"""Tables of one choice on CIFAR100: methods with either value of a setting, beside the paper's last sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from fscil import grid, paper, runs
from fscil.config import check_overrides, overrides_of, split_override
from fscil.errors import UserError

BENCHMARK = "cifar100"
SHARED = "recipe=paper"  # so that all rows of a seed with the same augmentation share one encoder
MEASURES = ("last", "average", "harmonic_mean", "area")
GAINS = ("last", "area")


@dataclass(frozen=True)
class Choice:
    """Every method with every value; the first value is what the others are compared with, seed by seed."""

    TITLE: str
    key: str  # of the setting
    values: Mapping[str, str]  # by the name that the table shows
    methods: tuple[str, ...]
    published: Mapping[str, Mapping[str, float]]  # accuracy in the last session by method and shown name

    def reproduce(
        self,
        seeds: Sequence[int],
        overrides: Sequence[str],
        environment: runs.RunEnvironment,
        out: Console,
        progress: Console,
    ) -> None:
        jobs = grid.build_jobs(BENCHMARK, self.rows_with(overrides), seeds, prefix=self.key)
        groups = grid.run_grid(jobs, environment, progress)
        out.print(self.TITLE, style="italic")
        out.print(grid.terminal(self.cells(groups)), crop=False)

    def rows_with(self, overrides: Sequence[str]) -> list[grid.Row]:
        check_overrides(self.methods, BENCHMARK, overrides)
        typed = {split_override(override)[0] for override in overrides}
        if self.key in typed:
            raise UserError(f"this table itself sets {self.key}; leave that out, or use `fscil run`")
        shared = () if "recipe" in typed else (SHARED,)
        return [
            grid.Row(
                f"{method} {shown}",
                method,
                (*shared, *overrides_of(method, BENCHMARK, overrides), f"{self.key}={value}"),
            )
            for method in self.methods
            for shown, value in self.values.items()
        ]

    def cells(self, groups: grid.Groups) -> list[list[str]]:
        """Means over the seeds, the paper's last session, and what the choice is worth in pairs of the same seed."""
        first = next(iter(self.values))
        header = [
            "row",
            *(grid.MEASURES[key] for key in MEASURES),
            "paper's last",
            f"last - {first}",
            f"area - {first}",
        ]
        lines = [header]
        for method in self.methods:
            for shown in self.values:
                results, others = groups[f"{method} {shown}"], groups[f"{method} {first}"]
                means = [grid.mean_and_deviation([getattr(r, key) for r in results]) for key in MEASURES]
                theirs = self.published.get(method, {}).get(shown)
                gaps = (
                    ["", ""] if shown == first else [grid.difference(results, others, key) for key in ("last", "area")]
                )
                lines.append([f"{method} {shown}", *means, "" if theirs is None else f"{theirs:.2f}", *gaps])
        return lines


TASK_SAMPLING = Choice(
    "Task sampling on CIFAR100: LIMIT's fake tasks (FIT), CEC's (PIL)",
    key="tasks",
    values={"pil": "pseudo", "fit": "fake"},
    methods=("cec", "limit"),
    published=paper.task_sampling()[BENCHMARK],
)
AUGMENTATION = Choice(
    "Augmentation on CIFAR100: crop and flip (basic), AutoAugment",
    key="augmentation",
    values={"basic": "basic", "autoaug": "autoaug"},
    methods=("cec", "limit"),
    published=paper.augmentation()[BENCHMARK],
)
SET_FUNCTIONS = Choice(
    "Set functions on CIFAR100: transformer, deep sets, bi-LSTM",
    key="calibrator",
    values={name: name for name in ("transformer", "deep-sets", "bi-lstm")},
    methods=("limit",),
    published={"limit": {"transformer": paper.augmentation()[BENCHMARK]["limit"]["autoaug"]}},
)
