from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from rich.console import Console

from fscil import paper
from fscil.labels import by_benchmark, repetitions
from fscil.results import Result, markdown_table, session_table
from fscil.table_lines import SUMMARY, costs, number, table_lines

MakeResult = Callable[..., Result]
CIFAR = (60, *[5] * 8)


def printed(results: list[Result], width: int = 60) -> str:
    console = Console(file=io.StringIO(), width=width)
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
    assert difference.values[11:] == [None] * 5
    text = printed([make_result(CIFAR, benchmark="cifar100", accuracy=accuracy)])
    assert "paper, autoaug" in text
    assert "51.23" in text
    assert "+1.50" in text


def test_the_papers_base_and_new_are_shown_where_it_has_them(make_result: MakeResult) -> None:
    lines = table_lines([make_result((100, *[10] * 10), benchmark="cub200", method="limit", preset="limit-paper")])
    assert lines[1].values[-5:] == [73.6, 41.8, 53.3, None, None]
    assert lines[2].values[-5:] == [None] * 5  # a mean over classes minus a mean over images is meaningless
    assert lines[0].label == "limit-paper"


def test_no_paper_line_where_the_paper_has_none(make_result: MakeResult) -> None:
    assert [line.kind for line in table_lines([make_result()])] == ["ours"]
    other_stream = make_result((60, 10, 10, 10, 10), benchmark="cifar100")
    assert [line.kind for line in table_lines([other_stream])] == ["ours"]


def test_relative_improvement_is_the_papers(make_result: MakeResult) -> None:
    """Its tables subtract LIMIT's PD, with AutoAugment, from that of every row."""
    limit = make_result(CIFAR, benchmark="cifar100", pd=20.0, accuracy=[70.0, *[60.0] * 7, 50.0])
    cec = make_result(CIFAR, benchmark="cifar100", method="cec", preset="cec", accuracy=[70.0, *[60.0] * 7, 46.5])
    lines = {line.label: line.values[-1] for line in table_lines([limit, cec]) if line.kind != "difference"}
    assert lines == {"limit": 0.0, "paper, autoaug": pytest.approx(1.04), "cec": pytest.approx(3.5)}
    published = [line for line in table_lines([limit, replace(cec, augmentation="basic")]) if line.kind == "paper"]
    assert [line.values[-1] for line in published] == [0.0, pytest.approx(1.35)]
    seeds = [replace(limit, seed=2, pd=21.0), limit, cec]
    assert [line.deviations[-1] for line in table_lines(seeds)] == [None] * 6
    assert "relative improvement" in printed([limit, cec], width=80)
    assert "relative improvement" not in printed([limit])
    assert "relative improvement" not in printed([cec])


def test_costs_of_several_methods_are_compared(make_result: MakeResult) -> None:
    """Stages from the cache count with the seconds that they once took."""
    limit = [make_result(seed=seed) for seed in (1, 2)]
    icarl = make_result(preset="icarl", method="icarl", exemplars=400, seconds={"all": {"seconds": 5, "cached": True}})
    for text in (printed([*limit, icarl], width=80), markdown_table([*limit, icarl])):
        lines = text.lower().partition("cost of a run")[2].splitlines()
        rows = [re.sub(r"[*|\s]+", " ", line).split() for line in lines]
        assert ["limit", "74", "270,000", "12,000", "0"] in rows
        assert ["icarl", "5.0", "270,000", "12,000", "400"] in rows
    assert "cost" not in printed(limit)


@pytest.mark.parametrize(
    ("stages", "seconds"),
    [
        # what a run with an encoder from the cache writes: the total has everything but that encoder's training
        ({"read": 3.0, "pretrain": "188.0", "icarl-60": 1.5, "icarl-65": 1.0, "sessions": 13.0, "total": 17.0}, "205"),
        ({"read": 3.0, "pretrain": 188.0, "meta-train": 40.0, "sessions": 1.0, "total": 233.0}, "233"),
        # one that was resumed has no total
        ({"read": 3.0, "pretrain": 188.0, "icarl-60": 1.5, "sessions": 13.0}, "204"),
        ({"read": 3.0, "pretrain": "100.0", "eeil-60": 1.0, "eeil-60-balanced": 5.0, "sessions": 13.0}, "116"),
        # joint's training after the last session may come from the cache, too
        ({"read": 1.0, "pretrain": "100.0", "joint-95": "900.0", "sessions": 3.0, "total": 5.0}, "1,005"),
    ],
)
def test_no_second_is_counted_twice(stages: dict[str, float | str], seconds: str, make_result: MakeResult) -> None:
    """Strings stand for stages that came from the cache."""
    times = {name: {"seconds": float(value), "cached": isinstance(value, str)} for name, value in stages.items()}
    ((_, (found, *_)),) = costs([make_result(seconds=times)])
    assert found == seconds


def test_improvement_is_relative_to_limit_as_it_is(make_result: MakeResult) -> None:
    limits = [
        make_result(accuracy=[80.0, 60.0, last], pd=80.0 - last, changed=changed, config_hash=f"{last}-1")
        for last, changed in ((49.0, ["check=false"]), (60.0, []))
    ]
    cec = make_result(method="cec", preset="cec", accuracy=[80.0, 60.0, 55.0])
    lines = [line for line in table_lines([*limits, cec]) if line.kind == "ours"]
    assert [line.values[-1] for line in lines] == [11.0, 0.0, 5.0]


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
    trials = [
        {"trial": t, "accuracy": [70.0, 60.0, a], "harmonic_mean": 40.0, "area": 9.0} for t, a in [(1, 50.0), (2, 52.0)]
    ]
    lines = table_lines([make_result(trials=trials)])
    assert lines[1].label == "2 draws of shots"
    assert lines[1].values == [70.0, 60.0, 51.0, 19.0, pytest.approx(181 / 3), None, None, 40.0, 0.0, 9.0]


def test_a_method_with_a_margin_is_also_shown_without(make_result: MakeResult) -> None:
    zero = {"accuracy": [70.0, 60.0, 40.0], "last": 40.0, "pd": 30.0, "average": 56.0, "base": 60.0, "new": 20.0}
    results = [
        make_result(seed=seed, margin=0.4, area=44.0, margin_zero={**zero, "harmonic_mean": hm})
        for seed, hm in ((1, 30.0), (2, 32.0))
    ]
    ours, without = table_lines(results)
    assert (ours.label, ours.detail, without.label) == ("limit", "2 seeds, margin 0.4", "margin 0")
    assert without.values == pytest.approx([70.0, 60.0, 40.0, 30.0, 170 / 3, 60.0, 20.0, 31.0, 0.0, 44.0])
    assert without.deviations[-3] == pytest.approx(2**0.5)
    for text in (printed(results, width=80), markdown_table(results)):
        assert "margin 0.4" in text
        assert "31.00" in text
    assert "margin" not in table_lines([make_result()])[0].detail


def test_every_line_of_ours_has_its_margin_in_a_column(make_result: MakeResult) -> None:
    """The paper has no number for its own, and a setting has no deviation."""
    plus = [make_result(CIFAR, seed=seed, benchmark="cifar100", preset="limit-plus", margin=0.35) for seed in (1, 2)]
    means = make_result(CIFAR, benchmark="cifar100", preset="means", method="decoupled-cosine")
    older = replace(means, preset="older", method="older", margin=None, area=None)
    results = [*plus, means, older]
    shown = [
        ("limit-plus", "0.35"),
        ("margin 0", "0.00"),
        ("paper", "–"),
        ("means", "0.00"),
        ("paper", "–"),
        ("older", "–"),
    ]
    for text in (printed(results, width=80), markdown_table(results)):
        summary = re.sub("[|*_]", "", text).partition(" PD ")[2].lower().partition("whatever the margin")[0]
        rows = [line.strip() for line in summary.splitlines()]
        assert rows[0].split()[-2:] == ["margin", "area"]
        labels = tuple(label for label, _ in shown)
        found = [re.sub("± [0-9.]+", "", row).split()[-2] for row in rows if row.startswith(labels)]
        assert found == [margin for _, margin in shown]


def test_what_no_margin_changes_has_a_block_of_its_own(make_result: MakeResult) -> None:
    curve = {"base_among_base": 81.25, "new_among_new": 66.5, "best_harmonic_mean": 55.75, "best_last": 58.5}
    results = [make_result(margin=0.4, **curve), make_result(preset="older", area=None)]
    for text in (printed(results, width=80), markdown_table(results)):
        heading = text.lower().index("whatever the margin")
        assert [text.index(value) > heading for value in ("81.25", "66.50", "55.75", "58.50")] == [True] * 4
        assert "older" not in text[heading : text.lower().index("cost of a run")]


def test_results_without_an_area_are_shown_as_before(make_result: MakeResult) -> None:
    """Runs of earlier versions did not measure it, and a stream without new classes has none."""
    older = replace(make_result(), area=None, margin=None, margin_zero=None, curve=[])
    for results in ([older], [make_result((3,))]):
        for text in (printed(results, width=80), markdown_table(results)):
            assert "HM" in text
            assert "area" not in text.lower()
            assert "margin" not in text.lower()


def comparison(make_result: MakeResult, stream: tuple[int, ...], benchmark: str, **fields: object) -> list[Result]:
    methods = {"limit": "limit", "limit-paper": "limit", "decoupled-cosine": "decoupled-cosine"}
    return [
        make_result(stream, seed=seed, benchmark=benchmark, preset=preset, method=method, **fields)
        for preset, method in methods.items()
        for seed in range(1, 6)
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"preset": "a-preset-with-a-name-that-goes-on-and-on-and-on-and-on-without-any-end"},
        {"changed": ["batch=512", "lr=0.4", "weight_decay=7e-4", "power=0.7", "encoder_lr=2e-4", "mirror=true"]},
        {"weights": "imagenet sha256:0123456789abcdef", "memory": "20 a class", "title": "a folder " * 20},
        {"accuracy": [100.0, *[0.0] * 8]},
        {"margin": 0.4},
        # as wide as numbers get
        {"accuracy": [0.0, *[100.0] * 8], "base": 100.0, "new": 100.0, "harmonic_mean": 100.0, "area": 100.0},
    ],
)
def test_eighty_columns_are_enough(make_result: MakeResult, fields: dict[str, Any]) -> None:
    usual = comparison(make_result, CIFAR, "cifar100")
    odd = [make_result(CIFAR, seed=s, benchmark="cifar100", config_hash="odd-1", **fields) for s in (1, 2)]
    for results in ([*usual, *odd], odd, comparison(make_result, (100, *[10] * 10), "cub200")):
        text = printed(results, width=80)
        assert max(map(len, text.splitlines())) <= 80
        for line in chain(*map(table_lines, by_benchmark(results).values())):  # and nothing is lost
            for value in line.values:
                assert number(value, signed=line.kind == "difference") in text
            for deviation in line.deviations:
                assert deviation is None or f"±{deviation:.2f}" in text


def test_a_long_stream_is_broken_into_blocks_that_fit(make_result: MakeResult) -> None:
    text = printed([make_result((5, *[1] * 25))], width=80)
    heads = [line.split()[1:] for line in text.splitlines() if line.startswith("method")]
    *of_table, over_all_margins = heads
    assert [name for head in of_table for name in head] == [*map(str, range(26)), *SUMMARY[:-1]]
    assert over_all_margins == ["base", "only", "new", "only", "best", "HM", "best", "last"]
    assert max(map(len, text.splitlines())) <= 80


def test_a_terminal_that_is_too_narrow_loses_no_number(make_result: MakeResult) -> None:
    results = comparison(make_result, CIFAR, "cifar100")
    numbers = [word for word in printed(results, width=80).split() if word[-1].isdigit()]
    assert [word for word in printed(results, width=30).split() if word[-1].isdigit()] == numbers


def test_short_settings_stand_in_the_label_and_long_ones_below_the_table(make_result: MakeResult) -> None:
    long = ["power=0.5", "mirror=true", "whiten=1", "encoder_lr=2e-4"]
    results = [
        make_result(changed=["epochs=9"]),
        make_result(changed=["epochs=9", "lr=0.1", "trial=2"], config_hash="1-1"),
        make_result(changed=["epochs=9", *long], config_hash="2-1"),
    ]
    assert [line.label for line in table_lines(results)] == ["limit", "limit lr=0.1", "limit [a]"]
    for text in (" ".join(printed(results, width=80).split()), markdown_table(results)):
        assert f"[a] {', '.join(long)}" in text
        assert "all: autoaug, epochs=9" in text
        assert "trial=2" not in text  # repetitions may differ in it


@pytest.mark.parametrize(
    "fields",
    [
        {"changed": ["lr=0.1"], "config_hash": "1-1"},
        {"config_hash": "1-1"},
        {"augmentation": "basic"},
        {"weights": "imagenet sha256:0123456789abcdef"},
        {"memory": "20 a class", "config_hash": "1-1"},
        {},
    ],
)
def test_two_lines_never_have_the_same_label(make_result: MakeResult, fields: dict[str, Any]) -> None:
    labels = [line.label for line in table_lines([make_result(), make_result(**fields)])]
    assert len(set(labels)) == 2


def test_weights_that_share_a_name_are_told_apart_by_their_checksums(make_result: MakeResult) -> None:
    results = [make_result(weights=f"mine.pt sha256:{digit * 16}") for digit in "12"]
    text = printed(results, width=80)
    assert "1" * 16 in text
    assert "2" * 16 in text


def test_weights_stand_below_the_table_with_their_checksum(make_result: MakeResult) -> None:
    results = [make_result(seed=seed, weights="imagenet sha256:0123456789abcdef") for seed in (1, 2)]
    for table in (printed(results, width=80), markdown_table(results)):
        assert len(re.findall(r"weights: +imagenet sha256:0123456789abcdef", table)) == 1
    assert "weights:" not in printed([make_result()])


def test_every_benchmark_has_a_table_under_its_title(make_result: MakeResult) -> None:
    results = [make_result((3,), benchmark="digits"), make_result(benchmark="folder", title="my photos")]
    text = printed(results, width=80)
    assert text.index("digits:") < text.index("my photos:")
    assert "folder" not in text
    assert "**my photos**" in markdown_table(results)


def test_streams_of_different_length_share_a_table(make_result: MakeResult) -> None:
    short, _ = table_lines([make_result((3,)), make_result()])
    assert short.values[1:3] == [None, None]
    assert short.values[-1] is None


def test_markdown_keeps_its_columns_whatever_the_names(make_result: MakeResult) -> None:
    lines = markdown_table([make_result(preset="a|b"), make_result(preset="c", seed=4)]).splitlines()
    assert lines[0].startswith("| method | 0 | 1 | 2 | PD | average |")
    rows = [line for line in lines if line.startswith("|")]
    assert [row.replace("\\|", "").count("|") for row in rows] == [12] * 4 + [6] * 8


def test_markdown_of_many_sessions_has_the_summary_on_its_own(make_result: MakeResult) -> None:
    lines = markdown_table(comparison(make_result, CIFAR, "cifar100")).splitlines()
    heads = [line for line in lines if line.startswith("| method")]
    assert heads == [
        "| method | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 |",
        "| method | PD | average | base | new | HM | margin | area | ΔPD |",
        "| method | base only | new only | best HM | best last |",
        "| method | seconds | parameters | training only | exemplars |",
    ]


def test_names_are_not_taken_for_markup(make_result: MakeResult) -> None:
    text = printed([make_result(preset="[red]limit[/red]", benchmark="[b]mine")])
    assert "[red]limit[/red]" in text
    assert "[b]mine" in text


def test_no_results_are_said_to_be_none() -> None:
    assert "no results" in printed([])
    assert markdown_table([]) == ""


def test_numbers_have_two_digits_and_no_negative_zero() -> None:
    assert [number(1.005), number(-0.001, signed=True), number(None), number(3, signed=True)] == [
        "1.00",
        "+0.00",
        "–",
        "+3.00",
    ]
