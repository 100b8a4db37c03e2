from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import calibrator_reference as reference
from fscil.calibrators import Transformer

FORMS = (
    {"cosine": False, "scale": 1.0},
    {"cosine": True, "scale": 16.0},
    {"cosine": True, "scale": 2.0, "query_length": True},
)


def make(dim: int, seed: int = 0, **options: float | bool) -> Transformer:
    torch.manual_seed(seed)
    calibrator = Transformer(dim, **options).double().eval()
    with torch.no_grad():  # biases and layer norm as training leaves them, not as they start
        for parameter in (calibrator.W_FC.bias, calibrator.layer_norm.weight, calibrator.layer_norm.bias):
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return calibrator


def inputs(C: int, Q: int, dim: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(C, dim, dtype=torch.float64, generator=generator),
        torch.randn(Q, dim, dtype=torch.float64, generator=generator),
    )


@settings(max_examples=25, deadline=None)
@given(C=st.integers(1, 7), Q=st.integers(1, 4), dim=st.integers(2, 9), seed=st.integers(0, 99))
@pytest.mark.parametrize("options", FORMS)
def test_logits_are_the_papers_formula(options: dict[str, Any], C: int, Q: int, dim: int, seed: int) -> None:
    calibrator = make(dim, seed, **options)
    rows, queries = inputs(C, Q, dim, seed)
    weights = reference.weights_of(calibrator)
    expected = [reference.logits(weights, rows.numpy(), q.numpy(), **options) for q in queries]
    assert np.allclose(calibrator(rows, queries).detach().numpy(), np.stack(expected), atol=1e-9)


def test_calibrated_rows_and_query_are_the_papers_formula() -> None:
    calibrator = make(6)
    rows, queries = inputs(5, 3, 6)
    W, phi = calibrator.calibrate(rows, queries)
    assert W.shape == (3, 5, 6)
    assert phi.shape == (3, 6)
    for i, query in enumerate(queries):
        expected_rows, expected_query = reference.calibrate(
            reference.weights_of(calibrator), rows.numpy(), query.numpy()
        )
        assert np.allclose(W[i].detach().numpy(), expected_rows, atol=1e-10)
        assert np.allclose(phi[i].detach().numpy(), expected_query, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(6)), seed=st.integers(0, 99))
def test_rows_in_another_order_give_logits_in_that_order(order: list[int], seed: int) -> None:
    assert Transformer.permutation_equivariant
    calibrator = make(5, seed)
    rows, queries = inputs(6, 3, 5, seed)
    assert torch.allclose(calibrator(rows[order], queries), calibrator(rows, queries)[:, order], atol=1e-12)


def test_a_query_does_not_feel_the_others_of_its_batch() -> None:
    calibrator = make(5)
    rows, queries = inputs(4, 3, 5)
    alone = torch.cat([calibrator(rows, query[None]) for query in queries])
    assert torch.allclose(calibrator(rows, queries), alone, atol=1e-12)


def test_every_row_and_the_query_matter_to_every_logit() -> None:
    """Co-adaptation: moving one row moves the other rows' logits as well."""
    calibrator = make(5)
    rows, queries = inputs(4, 1, 5)
    moved = rows.clone()
    moved[3] += 1
    difference = (calibrator(moved, queries) - calibrator(rows, queries)).abs()
    assert (difference > 1e-6).all()


def test_dropout_acts_in_training_alone() -> None:
    calibrator = make(16, dropout=0.5)
    rows, queries = inputs(4, 3, 16)
    assert torch.equal(calibrator(rows, queries), calibrator(rows, queries))
    calibrator.train()
    assert not torch.allclose(calibrator(rows, queries), calibrator(rows, queries))
    undisturbed = make(16, dropout=0.0)
    in_evaluation = undisturbed(rows, queries)
    assert torch.equal(undisturbed.train()(rows, queries), in_evaluation)


def test_dropout_spares_the_residual() -> None:
    """With everything dropped, only the layer norm of the input is left."""
    calibrator = make(8, dropout=1.0).train()
    rows, queries = inputs(3, 2, 8)
    W, phi = calibrator.calibrate(rows, queries)
    assert torch.allclose(phi, calibrator.layer_norm(queries))
    assert torch.allclose(W[0], calibrator.layer_norm(rows))


def test_parameters_are_those_of_one_layer_and_one_head() -> None:
    assert sum(p.numel() for p in Transformer(64).parameters()) == 4 * 64**2 + 3 * 64
    assert isinstance(Transformer(64).W_FC.bias, nn.Parameter)
    assert Transformer(64).W_Q.bias is None


def test_gradients_reach_rows_queries_and_all_weights() -> None:
    calibrator = make(5)
    rows, queries = (each.requires_grad_() for each in inputs(4, 2, 5))
    calibrator(rows, queries).logsumexp(1).sum().backward()
    assert all((t.grad != 0).any() for t in (rows, queries, *calibrator.parameters()) if t.grad is not None)
    assert all(t.grad is not None for t in (rows, queries, *calibrator.parameters()))


def with_slots(slots: int, **options: float | bool) -> Transformer:
    calibrator = make(6, slots=slots, **options)
    assert calibrator.placeholders is not None
    with torch.no_grad():
        calibrator.placeholders.add_(torch.randn(slots, 6, generator=torch.Generator().manual_seed(5)))
    return calibrator


@pytest.mark.parametrize("C", [2, 5, 7, 9])
def test_placeholders_are_rows_without_logits_until_their_class_arrives(C: int) -> None:
    calibrator, (rows, queries) = with_slots(7, cosine=True, scale=16.0), inputs(C, 3, 6)
    assert calibrator.placeholders is not None
    weights = reference.weights_of(calibrator)
    everything = np.concatenate([rows.numpy(), calibrator.placeholders.detach().numpy()[C:]])
    assert len(everything) == max(C, 7)
    expected = np.stack(
        [reference.logits(weights, everything, q.numpy(), cosine=True, scale=16.0)[:C] for q in queries]
    )
    for function in (calibrator, calibrator.attend, calibrator.predict):
        assert np.allclose(function(rows, queries).detach().numpy(), expected, atol=1e-9)


def test_placeholders_start_at_zero_and_learn() -> None:
    calibrator, (rows, queries) = make(6, slots=7), inputs(5, 3, 6)
    assert calibrator.placeholders is not None
    assert not calibrator.placeholders.any()
    calibrator(rows, queries).square().sum().backward()
    assert calibrator.placeholders.grad is not None
    assert (calibrator.placeholders.grad.abs().amax(1) > 0).tolist() == [False] * 5 + [True] * 2
    assert "placeholders" not in Transformer(6).state_dict()


@pytest.mark.parametrize("slots", [0, 7])
@pytest.mark.parametrize("options", FORMS)
def test_recursion_asks_again_with_the_calibrated_query(options: dict[str, Any], slots: int) -> None:
    calibrator = with_slots(slots, **options) if slots else make(6, **options)
    rows, queries = inputs(5, 3, 6)
    weights, found = reference.weights_of(calibrator), calibrator.recur(rows, queries, 3)
    everything = calibrator.with_placeholders(rows).detach().numpy()
    assert len(found) == 3
    for i, query in enumerate(queries.numpy()):
        for depth in range(3):
            expected = reference.logits(weights, everything, query, **options)[:5]
            assert np.allclose(found[depth][i].detach().numpy(), expected, atol=1e-9)
            _, query = reference.calibrate(weights, everything, query)
    assert torch.equal(found[0], calibrator(rows, queries))
