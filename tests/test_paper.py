from __future__ import annotations

import pytest

from fscil import paper

PRINTED_SLIPS = {("cub200", "topic")}  # printed 42.40; its own README ends at 26.28, the table at 26.26
METHODS = ["finetune", "icarl", "eeil", "rebalancing", "topic", "decoupled-cosine", "decoupled-deepemd", "cec", "limit"]


@pytest.mark.parametrize("benchmark_name", paper.BENCHMARKS)
def test_rows_are_whole_and_their_pd_is_the_printed_one(benchmark_name: str) -> None:
    rows = paper.published(benchmark_name)
    assert len(rows) == 11
    assert {row.method for row in rows} == set(METHODS)
    for row in rows:
        assert len(row.accuracy) == len(paper.stream(benchmark_name))
        slip = 0.021 if (benchmark_name, row.method) in PRINTED_SLIPS else 0.011
        assert row.accuracy[0] - row.accuracy[-1] == pytest.approx(row.pd, abs=slip), row


def test_no_digit_has_moved_since_the_tables_were_compared_with_the_paper() -> None:
    totals = [sum(sum(row.accuracy) for row in paper.published(name)) for name in paper.BENCHMARKS]
    assert totals == pytest.approx([4640.89, 5981.24, 4462.64], abs=0.001)
    assert sum(map(sum, paper.ablation().values())) == pytest.approx(2314.64, abs=0.001)


def test_every_method_of_the_paper_has_a_row_on_every_benchmark() -> None:
    for benchmark in paper.BENCHMARKS:
        for method in METHODS:
            assert paper.row(benchmark, method), (benchmark, method)


def test_the_augmentation_chooses_between_the_two_rows_of_limit_and_cec() -> None:
    assert paper.row("cifar100", "limit")[-1] == 51.23  # type: ignore[index]
    assert paper.row("cifar100", "limit", "basic")[-1] == 49.92  # type: ignore[index]
    assert paper.row("cub200", "cec", "autoaug")[-1] == 51.38  # type: ignore[index]
    assert paper.row("cub200", "cec", "basic")[-1] == 52.28  # type: ignore[index]
    assert paper.row("cub200", "topic", "autoaug") == paper.row("cub200", "topic", "basic")


def test_presets_are_held_against_their_method() -> None:
    assert paper.row("cub200", "limit-paper") == paper.row("cub200", "limit")
    assert paper.row("cifar100", "decoupled-cosine-x") == paper.row("cifar100", "decoupled-cosine")


def test_what_was_not_published_has_no_row() -> None:
    assert paper.row("glyphs", "limit") is None
    assert paper.row("cifar100", "limitless") is None
    assert paper.row("cifar100-validation", "limit") is None
    assert paper.row("ablation", "finetune") is None
    assert paper.find("cifar100", "limit", classes_per_session=[60, 10, 10, 10, 10]) is None
    assert paper.find("cifar100", "limit", classes_per_session=[60, *[5] * 8]) is not None


def test_the_tables_of_last_accuracies_repeat_the_rows() -> None:
    """The small tables print the last numbers of the big ones, so a misprint in either would show."""
    for benchmark, methods in paper.augmentation().items():
        for method, values in methods.items():
            for name, last in values.items():
                assert paper.row(benchmark, method, name)[-1] == last  # type: ignore[index]
    for benchmark, methods in paper.task_sampling().items():
        assert methods["limit"]["fit"] == paper.row(benchmark, "limit")[-1]  # type: ignore[index]
        assert methods["cec"]["pil"] == paper.row(benchmark, "cec", "basic")[-1]  # type: ignore[index]


def test_the_ablation_adds_one_part_a_line_and_ends_with_limit() -> None:
    rows = paper.ablation()
    assert list(rows) == ["finetune", "prototype", "calibration", "meta-1", "meta-c"]
    assert [row[-1] for row in rows.values()] == [2.65, 46.98, 48.30, 50.01, 51.23]
    assert all(len(row) == 9 for row in rows.values())
    assert rows["meta-c"] == pytest.approx(paper.row("cifar100", "limit"), abs=0.041)  # the paper's own slips


def test_callers_may_change_what_they_get() -> None:
    paper.row("cifar100", "limit").clear()  # type: ignore[union-attr]
    paper.ablation().clear()
    assert paper.row("cifar100", "limit")
    assert paper.ablation()
