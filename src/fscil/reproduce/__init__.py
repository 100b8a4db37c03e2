"""The paper's tables and figures, and one about its released code; one file each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console

from fscil import runs
from fscil.naming import choose
from fscil.reproduce import ablation, choices, released


class Table(Protocol):
    @property
    def TITLE(self) -> str: ...  # noqa: N802

    def reproduce(
        self,
        seeds: Sequence[int],
        overrides: Sequence[str],
        environment: runs.RunEnvironment,
        out: Console,
        progress: Console,
    ) -> None: ...


TABLES: dict[str, Table] = {
    "ablation": ablation,
    "task-sampling": choices.TASK_SAMPLING,
    "augmentation": choices.AUGMENTATION,
    "set-functions": choices.SET_FUNCTIONS,
    "released-code": released,
}


def names() -> dict[str, str]:
    return {name: module.TITLE for name, module in TABLES.items()}


def reproduce(
    name: str,
    seeds: Sequence[int],
    overrides: Sequence[str],
    environment: runs.RunEnvironment,
    out: Console,
    progress: Console,
) -> None:
    TABLES[choose(name, TABLES, "table or figure")].reproduce(seeds, overrides, environment, out, progress)
