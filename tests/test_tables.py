from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from fscil import paper
from fscil.results import Result, markdown_table, session_table
from fscil.tables import number, repetitions, table_lines

MakeResult = Callable[..., Result]
CIFAR = (60, *[5] * 8)


def printed(results: list[Result]) -> str:
    console = Console(file=io.StringIO(), width=60)  # narrower than any table
    console.print(session_table(results), crop=False)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_papers_row_and_the_difference_stand_below_ours(make_result: MakeResult) -> None:
    accuracy = [value + 1.5 for value in paper.row("cifar100", "limit") or []]
    ours, published, difference = table_lines([make_result(CIFAR, benchmark="cifar100", accuracy=accuracy)])
    assert [ours.kind, published.kind, difference.kind] == ["ours", "paper", "difference"]
    assert published.values[:9] == paper.row("cifar100", "limit")
    assert published.values[9] == 22.58
    assert difference.values[:9] == pytest.approx([1.5] * 9)
    assert difference.values[9] == pytest.approx(0.0, abs=0.01)
    assert difference.values[10] == pytest.approx(1.5)  # the average
    assert difference.values[11:] == [None, None, None]
    text = printed([make_result(CIFAR, benchmark="cifar100", accuracy=accuracy)])
    assert "paper autoaug" in text
    assert "51.23" in text
    assert "+1.50" in text


def test_the_papers_base_and_new_are_shown_where_it_has_them(make_result: MakeResult) -> None:
    lines = table_lines([make_result((100, *[10] * 10), benchmark="cub200", method="limit", preset="limit-paper")])
    assert lines[1].values[-3:] == [73.6, 41.8, 53.3]
    assert lines[2].values[-3:] == [None, None, None]  # a mean over classes less a mean over images says nothing
    assert lines[0].label == "limit-paper"


def test_no_paper_line_where_the_paper_has_none(make_result: MakeResult) -> None:
    assert [line.kind for line in table_lines([make_result()])] == ["ours"]
    other_stream = make_result((60, 10, 10, 10, 10), benchmark="cifar100")
    assert [line.kind for line in table_lines([other_stream])] == ["ours"]


def test_seeds_become_mean_and_standard_deviation(make_result: MakeResult) -> None:
    results = [make_result(seed=s, accuracy=[a, 60.0, 50.0]) for s, a in [(1, 70.0), (2, 72.0), (3, 74.0)]]
    (line,) = table_lines(results)
    assert line.values[0] == 72.0
    assert line.deviations[0] == 2.0
    assert line.deviations[1] == 0.0
    assert "3 seeds" in line.detail
    text = printed(results)
    assert "72.00" in text
    assert "±2.00" in text
    assert "72.00 ± 2.00" in markdown_table(results)


def test_other_settings_methods_and_doubles_are_not_averaged(make_result: MakeResult) -> None:
    seeds = [make_result(seed=1), make_result(seed=2)]
    assert [len(group) for group in repetitions(seeds)] == [2]
    assert len(repetitions([*seeds, make_result(seed=3, config_hash="other-settings")])) == 2
    assert len(repetitions([*seeds, make_result(seed=3, preset="limit-paper")])) == 2
    assert len(repetitions([*seeds, make_result(seed=3, weights="imagenet-v1")])) == 2
    assert [len(group) for group in repetitions([*seeds, seeds[0]])] == [2, 1]


def test_draws_of_the_shots_get_their_own_line(make_result: MakeResult) -> None:
    trials = [{"trial": t, "accuracy": [70.0, 60.0, a], "harmonic_mean": 40.0} for t, a in [(1, 50.0), (2, 52.0)]]
    lines = table_lines([make_result(trials=trials)])
    assert lines[1].detail == "2 draws of the shots"
    assert lines[1].values == [70.0, 60.0, 51.0, 19.0, pytest.approx(181 / 3), None, None, 40.0]


def test_benchmarks_of_different_length_share_a_table(make_result: MakeResult) -> None:
    results = [make_result((6, 2, 2)), make_result((3,), benchmark="digits")]
    long, short = table_lines(results)
    assert len(long.values) == len(short.values) == 3 + 5
    assert short.values[1:3] == [None, None]
    assert short.values[-1] is None
    text = printed(results)
    assert "digits" in text
    assert "–" in text


def test_markdown_keeps_its_columns_whatever_the_names(make_result: MakeResult) -> None:
    lines = markdown_table([make_result(preset="a|b"), make_result(preset="c", seed=4)]).splitlines()
    assert lines[0].startswith("| method | 0 | 1 | 2 | PD | average |")
    columns = {line.replace("\\|", "").count("|") for line in lines}
    assert columns == {10}


def test_names_are_not_taken_for_markup(make_result: MakeResult) -> None:
    text = printed([make_result(preset="[red]limit[/red]", benchmark="[b]mine")])
    assert "[red]limit[/red]" in text
    assert "[b]mine" in text


def test_an_empty_table_is_a_table() -> None:
    assert "method" in printed([])
    assert markdown_table([]).startswith("| method |")


def test_numbers_have_two_digits_and_no_negative_zero() -> None:
    assert [number(1.005), number(-0.001, signed=True), number(None), number(3, signed=True)] == [
        "1.00",
        "+0.00",
        "–",
        "+3.00",
    ]
