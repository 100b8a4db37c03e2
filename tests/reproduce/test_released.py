from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fscil.config import resolve
from fscil.errors import UserError
from fscil.reproduce import released
from fscil.results import Result


def test_every_row_undoes_what_it_says_and_nothing_else() -> None:
    rows = {row.name: resolve(row.preset, "cifar100", row.settings).settings for row in released.rows_with([])}
    for name, settings in rows.items():
        other = rows[released.AGAINST[name]]
        changed = {key for key, value in settings.items() if value != other[key]}
        assert changed == ({name.partition("=")[0]} if name != released.RELEASED else set()) | (
            {"meta_milestones"} if name == "halve_every=1000" else set()
        )


def test_rows_are_compared_with_the_released_code_in_pairs(make_result: Callable[..., Result]) -> None:
    lasts = dict.fromkeys(released.UNDONE, (50.0, 51.0))
    lasts |= {released.ONCE: (51.0, 53.0), "tasks=fake": (52.0, 53.5)}
    groups = {
        name: [replace(make_result(seed=seed), last=last) for seed, last in enumerate(values)]
        for name, values in lasts.items()
    }
    _, *lines = released.cells(groups)
    table = {line[0].partition(":")[0]: line for line in lines}
    assert table["recursion=1"][5:7] == ["nothing", "+1.50 ± 0.50"]
    assert table["tasks=fake"][5:7] == ["recursion=1", "+0.75 ± 0.25"]
    assert table["nothing"][5:] == [""] * 3


def test_what_the_table_sets_cannot_be_overridden() -> None:
    with pytest.raises(UserError, match="this table itself sets recursion"):
        released.rows_with(["recursion=2"])
    assert all("meta_steps=8" in row.settings for row in released.rows_with(["meta_steps=8"]))
