"""The closed form against attention: the same numbers, the same gradients, for any rows."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from fscil.calibrators import Transformer, closed_form


def calibrator(dim: int = 16, *, cosine: bool) -> Transformer:
    torch.manual_seed(1)
    module = Transformer(dim, cosine=cosine, scale=16.0 if cosine else 1.0).double().eval()
    nn.init.normal_(module.layer_norm.weight, 1.0, 0.3)
    nn.init.normal_(module.layer_norm.bias, 0.0, 0.3)
    nn.init.normal_(module.W_FC.bias, 0.0, 0.3)
    return module.requires_grad_(False)


def tokens(n: int, dim: int, seed: int, size: float = 1.0) -> Tensor:
    return size * torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def both(module: Transformer, rows: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
    return module(rows, queries), module.attend(rows, queries)


def error(fast: Tensor, exact: Tensor) -> float:
    assert torch.isfinite(fast).all()
    return float((fast - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("cosine", [True, False])
@pytest.mark.parametrize("classes", [1, 2, 60, 2000])
def test_equals_attention_in_float64(classes: int, cosine: bool) -> None:
    module = calibrator(cosine=cosine)
    assert error(*both(module, tokens(classes, 16, 2), tokens(7, 16, 3))) < 1e-10


@pytest.mark.parametrize("cosine", [True, False])
@pytest.mark.parametrize("classes", [1, 100, 2000])
def test_equals_attention_in_float32(classes: int, cosine: bool) -> None:
    exact = calibrator(64, cosine=cosine)
    module = copy.deepcopy(exact).float()
    rows, queries = tokens(classes, 64, 2), tokens(7, 64, 3)
    assert error(module(rows.float(), queries.float()).double(), exact.attend(rows, queries)) < 1e-4


@pytest.mark.parametrize("cosine", [True, False])
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 300.0])
def test_survives_large_scores_duplicated_and_zero_rows(size: float, cosine: bool) -> None:
    """At size 300 scores reach tens of thousands: exponentials must never be formed as they are."""
    rows = tokens(10, 16, 2, size)
    rows = torch.cat([rows, rows[:3], torch.zeros(2, 16, dtype=torch.float64)])
    assert error(*both(calibrator(cosine=cosine), rows, tokens(5, 16, 3, size))) < 1e-10


@pytest.mark.parametrize("cosine", [True, False])
def test_gradients_are_right(cosine: bool) -> None:
    module = calibrator(4, cosine=cosine)
    rows, queries = tokens(3, 4, 2).requires_grad_(), tokens(2, 4, 3).requires_grad_()
    assert torch.autograd.gradcheck(module, (rows, queries))


def test_results_do_not_depend_on_the_memory() -> None:
    module, rows, queries = calibrator(cosine=True), tokens(30, 16, 2), tokens(11, 16, 3)
    whole = module(rows, queries)
    module.memory = 1e-3
    assert torch.allclose(module(rows, queries), whole, rtol=0, atol=1e-12)


def test_training_with_dropout_attends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout acts on every entry of every calibrated row, which the closed form never makes."""
    module = calibrator(cosine=True).train()
    rows, queries = tokens(5, 16, 2), tokens(3, 16, 3)
    assert not torch.equal(module(rows, queries), module(rows, queries))
    module.dropout.p = 0.0
    monkeypatch.setattr(module, "attend", lambda *_: pytest.fail("no attention per query is needed without dropout"))
    assert torch.equal(module(rows, queries), module(rows, queries))
