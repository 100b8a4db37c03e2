from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fscil.benchmark import Benchmark, validation_benchmark

Build = Callable[..., Benchmark]


def same_sessions(one: Benchmark, two: Benchmark) -> bool:
    return len(one.sessions) == len(two.sessions) and all(
        a.classes == b.classes and torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels)
        for a, b in zip(one.sessions, two.sessions, strict=True)
    )


@pytest.mark.parametrize("trial", [1, 2, 30])
def test_another_draw_is_what_reading_again_would_give(tiny_benchmark: Build, trial: int) -> None:
    redrawn, read_again = tiny_benchmark(trial=5).redrawn(trial), tiny_benchmark(trial=trial)
    assert same_sessions(redrawn, read_again)
    assert redrawn.split_checksum == read_again.split_checksum
    assert not same_sessions(redrawn, tiny_benchmark(trial=5))


def test_another_draw_of_an_inner_benchmark(tiny_benchmark: Build) -> None:
    outer = tiny_benchmark(base=9, images=10)
    redrawn, made_again = validation_benchmark(outer).redrawn(3), validation_benchmark(outer, trial=3)
    assert same_sessions(redrawn, made_again)
    assert redrawn.split_checksum == made_again.split_checksum


def test_another_draw_shares_all_but_the_shots(tiny_benchmark: Build) -> None:
    benchmark = tiny_benchmark()
    redrawn = benchmark.redrawn(2)
    assert redrawn.sessions[0] is benchmark.sessions[0]
    assert redrawn.test_images is benchmark.test_images


def test_shots_move_to_where_the_benchmark_is(tiny_benchmark: Build) -> None:
    benchmark = tiny_benchmark().to("meta")
    assert {session.images.device.type for session in benchmark.redrawn(2).sessions} == {"meta"}
    assert benchmark.pool.images.device.type == "cpu"
