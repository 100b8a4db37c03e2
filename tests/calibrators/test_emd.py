"""Earth mover's distances between maps: POT and a linear program as references for the two solvers."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import linprog
from torch import Tensor

from fscil.calibrators import EMD, emd
from fscil.errors import UserError


def maps(queries: int, classes: int, side: int, dim: int = 32, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Rows [classes, cells * dim] and queries that look like a ResNet's: smooth in space, never negative, half zeros.

    Queries lie around the classes, so that some distances are small and the nearest two often close.
    """
    generator = torch.Generator().manual_seed(seed)

    def smooth(n: int, size: int) -> Tensor:
        noise = torch.randn(n, dim, size, size, generator=generator)
        return F.interpolate(noise, size=(side, side), mode="bilinear")

    centres = 0.5 * smooth(classes, 2)
    labels = torch.randint(classes, (queries,), generator=generator)
    spread = torch.linspace(0.1, 1, queries).view(-1, 1, 1, 1)  # near the class's map, and far away
    asked = (centres[labels] + spread * (smooth(queries, 3) + 0.3 * smooth(queries, side))).relu()
    rows = torch.stack([(centre + 0.5 * smooth(5, 3)).relu().mean(0) for centre in centres])
    return tuple(each.flatten(2).mT.flatten(1).contiguous() for each in (rows, asked))  # type: ignore[return-value]


def reference(row: Tensor, query: Tensor, cells: int) -> float:
    """The distance of two maps in float64, cell by cell, by a general linear program."""
    u, v = (x.double().numpy().reshape(cells, -1) for x in (query, row))
    cost = np.array([[1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) for b in v] for a in u])
    mass = np.array([max(a @ v.mean(0), 0) + 1e-3 for a in u])
    own = np.array([max(b @ u.mean(0), 0) + 1e-3 for b in v])
    leave, arrive = np.zeros((2, cells, cells, cells))
    for i in range(cells):
        leave[i, i, :] = arrive[i, :, i] = 1
    flows = np.concatenate([leave, arrive]).reshape(2 * cells, -1)
    amounts = np.concatenate([mass / mass.sum(), own / own.sum()])
    return float(linprog(cost.ravel(), A_eq=flows, b_eq=amounts).fun)


@pytest.mark.parametrize("solver", ["auto", "exact", "sinkhorn"])
def test_scores_are_one_minus_the_distance(solver: str) -> None:
    rows, queries = maps(5, 3, side=3)
    found = EMD(32, cells=9, scale=16.0, solver=solver).predict(rows, queries)
    expected = torch.tensor([[16 * (1 - reference(row, query, 9)) for row in rows] for query in queries])
    assert torch.allclose(found, expected, atol=16 * 0.005 if solver == "sinkhorn" else 1e-4)


@pytest.mark.parametrize(("side", "queries", "classes"), [(4, 100, 8), pytest.param(8, 20, 5, marks=pytest.mark.slow)])
def test_sinkhorn_is_within_a_percent_of_pot(side: int, queries: int, classes: int) -> None:
    rows, asked = maps(queries, classes, side)
    exact, near = (1 - EMD(32, cells=side**2, solver=solver).predict(rows, asked) for solver in ("exact", "sinkhorn"))
    assert float(((near - exact) / exact).abs().max()) < 0.01
    assert float((near.argmin(1) == exact.argmin(1)).float().mean()) >= 0.99
    assert float(exact.min()) < 0.2 * float(exact.max())  # the easy problems are there, and the hard ones


def test_training_and_prediction_agree_within_a_percent() -> None:
    rows, queries = maps(6, 4, side=3)
    calibrator = EMD(32, cells=9)
    exact = 1 - calibrator.predict(rows, queries)
    assert float(((1 - calibrator(rows, queries) - exact) / exact).abs().max()) < 0.01


def test_a_map_is_at_no_distance_from_itself_and_black_maps_have_answers() -> None:
    rows, _ = maps(1, 3, side=2)
    for solver in ("exact", "sinkhorn"):
        calibrator = EMD(32, cells=4, solver=solver)
        scores = calibrator.predict(rows, rows)
        assert torch.allclose(scores.diagonal(), torch.ones(3), atol=2e-3)
        assert torch.equal(scores.argmax(1), torch.arange(3))
        assert calibrator.predict(torch.zeros_like(rows), rows).isfinite().all()


@pytest.mark.slow
def test_predictions_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, queries = maps(7, 3, side=2)
    calibrator = EMD(32, cells=4, solver="sinkhorn")
    whole = calibrator.predict(rows, queries)
    monkeypatch.setitem(emd.AT_ONCE, "cpu", 2 * 4**2)
    assert torch.allclose(calibrator.predict(rows, queries), whole, atol=1e-6)
    alone = torch.cat([calibrator.predict(row[None], queries) for row in rows], 1)
    assert torch.equal(alone, calibrator.predict(rows, queries))  # kept columns are what a fresh table would hold


def test_without_pot_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ot", None)
    rows, queries = maps(1, 1, side=2)
    with pytest.raises(UserError, match=r'need POT; pip install "fscil\[emd\]", or set solver=sinkhorn$'):
        EMD(32, cells=4).predict(rows, queries)
    assert EMD(32, cells=4, solver="sinkhorn").predict(rows, queries).isfinite().all()


def test_unknown_solvers_are_refused() -> None:
    with pytest.raises(UserError, match="unknown solver 'fast'; known are auto, exact, sinkhorn"):
        EMD(32, solver="fast")
