from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fscil import paper, reproduce
from fscil.config import resolve
from fscil.errors import UserError
from fscil.reproduce import choices
from fscil.reproduce.choices import Choice
from fscil.results import Result

every_choice = pytest.mark.parametrize(
    "choice", [choices.TASK_SAMPLING, choices.AUGMENTATION, choices.SET_FUNCTIONS], ids=lambda choice: choice.key
)


@every_choice
def test_rows_differ_in_the_choice_alone(choice: Choice) -> None:
    for method in choice.methods:
        rows = [row for row in choice.rows_with([]) if row.preset == method]
        settings = [resolve(row.preset, "cifar100", row.settings).settings for row in rows]
        assert [each[choice.key] for each in settings] == list(choice.values.values())
        assert all({**each, choice.key: ""} == {**settings[0], choice.key: ""} for each in settings)
        assert {each["epochs"] for each in settings} == {300}  # the paper's pre-training


@every_choice
def test_the_choice_cannot_be_overridden(choice: Choice) -> None:
    value = next(iter(choice.values.values()))
    with pytest.raises(UserError, match=f"this table itself sets {choice.key}"):
        choice.rows_with([f"{choice.key}={value}"])
    assert all("recipe=quick" in row.settings for row in choice.rows_with(["recipe=quick"]))


def test_differences_are_paired_and_the_papers_numbers_stand_beside_ours(
    make_result: Callable[..., Result],
) -> None:
    lasts = {"cec pil": (40.0, 44.0), "cec fit": (41.0, 45.5), "limit pil": (50.0, 51.0), "limit fit": (52.0, 52.0)}
    groups = {
        row: [replace(make_result(seed=seed), last=last) for seed, last in enumerate(values)]
        for row, values in lasts.items()
    }
    header, *lines = choices.TASK_SAMPLING.cells(groups)
    table = {line[0]: dict(zip(header, line, strict=True)) for line in lines}
    assert table["cec fit"]["last - pil"] == "+1.25 ± 0.25"
    assert table["cec pil"]["last - pil"] == ""
    assert [table[row]["paper's last"] for row in lasts] == ["49.14", "49.60", "51.03", "51.23"]
    assert paper.task_sampling()["cifar100"]["limit"]["fit"] == 51.23


def test_all_tables_are_listed() -> None:
    assert list(reproduce.names()) == ["ablation", "task-sampling", "augmentation", "set-functions", "released-code"]
