"""The calibrator of two numbers: trained rows choose among base classes, class means decide what that is worth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from fscil.calibrators import Cosine, Paired

Array = NDArray[np.float64]
DIM = 5


def logits_by_hand(rows: Array, query: Array, *, scale: float, trust: float, common: float) -> list[float]:
    """Rows [C, 2d] and one query [2d] -> C logits, one class at a time."""
    d = len(query) // 2
    directions = [row[:d] / np.sqrt((row[:d] ** 2).sum()) for row in rows]
    centre = sum(directions) / len(directions)
    asked = query[:d] / np.sqrt((query[:d] ** 2).sum()) - common * centre
    asked = asked / np.sqrt((asked**2).sum())
    cosines = [float(asked @ direction) for direction in directions]
    informed = {
        c: cosines[c] + trust * float(query[d:] @ row[d:]) / float(np.sqrt((row[d:] ** 2).sum()))
        for c, row in enumerate(rows)
        if row[d:].any()
    }
    found = []
    for c, cosine in enumerate(cosines):
        if c in informed:
            best_cosine = max(cosines[other] for other in informed)
            found.append(scale * (informed[c] - max(informed.values()) + best_cosine))
        else:
            found.append(scale * cosine)
    return found


def pairs(base: int, new: int, queries: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows [base + new, 2d], of which the new ones end in zeros, and queries [queries, 2d], in float64."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(base + new, 2 * DIM, dtype=torch.float64, generator=generator)
    rows[base:, DIM:] = 0
    return rows, torch.randn(queries, 2 * DIM, dtype=torch.float64, generator=generator)


@settings(max_examples=40, deadline=None)
@given(
    base=st.integers(0, 6),
    new=st.integers(0, 4),
    trust=st.sampled_from([0.0, 0.3, 1.0, 25.0]),
    common=st.sampled_from([0.0, 0.4, 1.0, 2.0]),
    seed=st.integers(0, 99),
)
def test_logits_are_those_of_a_loop_over_classes(base: int, new: int, trust: float, common: float, seed: int) -> None:
    """One class alone, no new class yet and no base class left included."""
    assume(base + new > 0)
    rows, queries = pairs(base, new, 3, seed)
    found = Paired(DIM, scale=7.0, trust=trust, common=common)(rows, queries)
    for query, logits in zip(queries, found, strict=True):
        expected = logits_by_hand(rows.numpy(), query.numpy(), scale=7.0, trust=trust, common=common)
        np.testing.assert_allclose(logits.numpy(), expected, rtol=0, atol=1e-9)


def test_without_trust_and_common_it_is_the_cosine_of_class_means() -> None:
    rows, queries = pairs(6, 4, 5, seed=1)
    expected = Cosine(DIM, scale=16.0)(rows[:, :DIM], queries[:, :DIM])
    torch.testing.assert_close(Paired(DIM, scale=16.0, trust=0.0, common=0.0)(rows, queries), expected)


@pytest.mark.parametrize("common", [0.0, 0.5])
@pytest.mark.parametrize("trust", [0.5, 1.0, 100.0])
def test_trust_moves_neither_the_best_base_score_nor_a_new_one(trust: float, common: float) -> None:
    rows, queries = pairs(6, 4, 20, seed=2)
    without = Paired(DIM, trust=0.0, common=common)(rows, queries)
    found = Paired(DIM, trust=trust, common=common)(rows, queries)
    torch.testing.assert_close(found[:, :6].amax(1), without[:, :6].amax(1))
    assert torch.equal(found[:, 6:], without[:, 6:])
    assert not torch.equal(found[:, :6].argmax(1), without[:, :6].argmax(1))  # but another class may have it


def test_trained_rows_choose_among_base_classes() -> None:
    """The class mean of class 0 is the nearest, the trained row that of class 1."""
    axes = torch.eye(DIM)
    rows = torch.stack([torch.cat([axes[0], axes[2]]), torch.cat([axes[1], axes[3]])])
    query = torch.cat([axes[0] + 0.9 * axes[1], axes[3]])[None]
    assert Paired(DIM, trust=0.0)(rows, query).argmax() == 0
    assert Paired(DIM, trust=1.0)(rows, query).argmax() == 1


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(9)), seed=st.integers(0, 99))
def test_rows_in_another_order_give_logits_in_that_order(order: list[int], seed: int) -> None:
    """Base classes need not come first."""
    assert Paired.permutation_equivariant
    rows, queries = pairs(5, 4, 3, seed)
    calibrator = Paired(DIM, scale=16.0, trust=0.7, common=0.4)
    torch.testing.assert_close(calibrator(rows[order], queries), calibrator(rows, queries)[:, order])


def test_there_is_nothing_to_train() -> None:
    assert list(Paired(DIM).parameters()) == []
    assert Paired(DIM).state_dict() == {}
