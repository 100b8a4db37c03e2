from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fscil.engine import seed_for
from fscil.engine.schedule import cosine, decay_at, decay_every


def test_cosine_falls_from_one_to_nearly_zero() -> None:
    schedule = cosine(10)
    assert schedule(0) == 1
    assert schedule(5) == pytest.approx(0.5)
    assert schedule(9) == pytest.approx(0.5 * (1 + math.cos(math.pi * 0.9)))
    assert schedule(10) == pytest.approx(0)


def test_warm_up_rises_linearly_and_meets_the_cosine_at_one() -> None:
    schedule = cosine(14, warmup=4)
    assert [schedule(step) for step in range(5)] == pytest.approx([0.25, 0.5, 0.75, 1, 1])
    assert schedule(9) == pytest.approx(0.5)


@given(steps=st.integers(1, 60), warmup=st.integers(0, 80))
def test_factors_stay_between_zero_and_one(steps: int, warmup: int) -> None:
    schedule = cosine(steps, warmup)
    assert all(0 <= schedule(step) <= 1 for step in range(steps))


def test_decay_at_milestones() -> None:
    schedule = decay_at([3, 5])
    assert [schedule(step) for step in range(7)] == pytest.approx([1, 1, 1, 0.1, 0.1, 0.01, 0.01])


def test_decay_at_milestones_after_a_warm_up() -> None:
    schedule = decay_at([4], by=0.5, warmup=2)
    assert [schedule(step) for step in range(6)] == pytest.approx([0.5, 1, 1, 1, 0.5, 0.5])


def test_decay_every_period_and_never() -> None:
    schedule = decay_every(1000)
    assert [schedule(step) for step in (0, 999, 1000, 1999, 2000, 4999)] == [1, 1, 0.5, 0.5, 0.25, 0.0625]
    assert decay_every(0)(10**6) == 1


def test_seeds_depend_on_every_name() -> None:
    assert seed_for(1, "pretrain", 2) == seed_for(1, "pretrain", 2)
    others = [
        seed_for(1, "pretrain", 2),
        seed_for(2, "pretrain", 2),
        seed_for(1, "pretrain", 3),
        seed_for(1, "meta", 2),
    ]
    assert len(set(others)) == 4
    assert all(0 <= seed < 2**63 for seed in others)
