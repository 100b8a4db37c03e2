"""The closed form against attention: the same numbers, the same gradients, for any rows, in bounded memory."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from fscil.calibrators import Transformer
from tensor_sizes import TensorSizes


def calibrator(dim: int = 16, *, cosine: bool) -> Transformer:
    torch.manual_seed(1)
    module = Transformer(dim, cosine=cosine, scale=16.0 if cosine else 1.0).double().eval()
    nn.init.normal_(module.layer_norm.weight, 1.0, 0.3)
    nn.init.normal_(module.layer_norm.bias, 0.0, 0.3)
    nn.init.normal_(module.W_FC.bias, 0.0, 0.3)
    return module.requires_grad_(False)


def tokens(n: int, dim: int, seed: int, size: float = 1.0) -> Tensor:
    return size * torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def error(module: Transformer, rows: Tensor, queries: Tensor) -> float:
    """Error of both closed-form paths against attention in float64, relative to the largest logit."""
    exact = copy.deepcopy(module).double().attend(rows.double(), queries.double())
    found = module(rows, queries), module.predict(rows, queries)
    assert all(torch.isfinite(each).all() for each in found)
    return max(float((each - exact).abs().max() / exact.abs().max()) for each in found)


@pytest.mark.parametrize(("classes", "queries"), [(1, 7), (60, 7), (2000, 7), (60, 1), (5000, 1)])
def test_equals_attention_if_queries_keep_their_length(classes: int, queries: int) -> None:
    module = calibrator(cosine=True)
    module.query_length = True
    assert error(module, tokens(classes, 16, 2), tokens(queries, 16, 3)) < 1e-10


@pytest.mark.parametrize("cosine", [True, False])
@pytest.mark.parametrize("classes", [1, 2, 60, 2000])
def test_equals_attention_in_float64(classes: int, cosine: bool) -> None:
    assert error(calibrator(cosine=cosine), tokens(classes, 16, 2), tokens(7, 16, 3)) < 1e-10


@pytest.mark.parametrize("cosine", [True, False])
@pytest.mark.parametrize("classes", [1, 100, 2000])
def test_equals_attention_in_float32(classes: int, cosine: bool) -> None:
    module = calibrator(64, cosine=cosine).float()
    assert error(module, tokens(classes, 64, 2).float(), tokens(7, 64, 3).float()) < 1e-4


@pytest.mark.parametrize("cosine", [True, False])
@pytest.mark.parametrize("classes", [1, 100, 5000])
def test_a_single_query_equals_attention(classes: int, cosine: bool) -> None:
    module, rows, query = calibrator(cosine=cosine), tokens(classes, 16, 2), tokens(1, 16, 3)
    assert error(module, rows, query) < 1e-10
    assert error(module.float(), rows.float(), query.float()) < 1e-4


@pytest.mark.parametrize("cosine", [True, False])
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 300.0])
def test_survives_large_scores_duplicated_and_zero_rows(size: float, cosine: bool) -> None:
    """At size 300 scores reach tens of thousands: the exponentials must never be computed directly."""
    rows = tokens(10, 16, 2, size)
    rows = torch.cat([rows, rows[:3], torch.zeros(2, 16, dtype=torch.float64)])
    queries = torch.cat([tokens(5, 16, 3, size), rows[:1], rows[-1:]])
    assert error(calibrator(cosine=cosine), rows, queries) < 1e-10


@pytest.mark.parametrize("cosine", [True, False])
def test_survives_large_scores_in_float32(cosine: bool) -> None:
    """Scores in the hundreds, whose exponentials are far beyond float32."""
    module = calibrator(cosine=cosine).float()
    rows = tokens(10, 16, 2, 12.0)
    rows = torch.cat([rows, rows[:3], torch.zeros(2, 16, dtype=torch.float64)]).float()
    scores = module.W_Q(rows) @ module.W_K(rows).T / 4
    assert scores.abs().max() > 100
    assert error(module, rows, tokens(5, 16, 3, 12.0).float()) < 1e-4


@pytest.mark.parametrize("cosine", [True, False])
def test_all_rows_far_from_the_origin(cosine: bool) -> None:
    """A large common offset, as features have after a ReLU; layer normalisation removes their means."""
    module = calibrator(64, cosine=cosine).float()
    rows, queries = (tokens(50, 64, 2) + 20).float(), (tokens(7, 64, 3) + 20).float()
    module.W_K.weight.mul_(0.02)  # keeps scores at the size that training gives them
    assert error(module, rows, queries) < 1e-4


@pytest.mark.parametrize("cosine", [True, False])
def test_gradients_are_right(cosine: bool) -> None:
    module = calibrator(4, cosine=cosine)
    rows, queries = tokens(3, 4, 2).requires_grad_(), tokens(2, 4, 3).requires_grad_()
    names = [name for name, _ in module.named_parameters()]
    weights = [parameter.detach().clone().requires_grad_() for parameter in module.parameters()]

    def logits(rows: Tensor, queries: Tensor, *weights: Tensor) -> Tensor:
        return torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (rows, queries))

    assert torch.autograd.gradcheck(logits, (rows, queries, *weights))


@pytest.mark.parametrize("cosine", [True, False])
@pytest.mark.parametrize("memory", [1e-6, 1e-3, 1e3])
def test_results_and_gradients_do_not_depend_on_the_memory(memory: float, cosine: bool) -> None:
    module, rows, queries = calibrator(cosine=cosine), tokens(30, 16, 2).requires_grad_(), tokens(11, 16, 3)
    found = []
    for module.memory in (32.0, memory):
        module.kept = None
        logits = module(rows, queries)
        (gradient,) = torch.autograd.grad(logits.logsumexp(1).sum(), rows)
        found.append((logits.detach(), gradient, module.predict(rows, queries)))
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(*found, strict=True))


def test_no_query_has_rows_of_its_own() -> None:
    """Attention needs a tensor [queries, classes, d]; the closed form makes nothing of that size."""
    Q, C, d = 40, 50, 32
    module, rows, queries = calibrator(d, cosine=True), tokens(C, d, 2), tokens(Q, d, 3)
    for closed_form in (module.predict, torch.no_grad()(module)):
        with TensorSizes() as sizes:
            closed_form(rows, queries)
        assert sizes.largest < Q * C * d / 5
    with TensorSizes() as sizes, torch.no_grad():
        module.attend(rows, queries)
    assert sizes.largest >= Q * C * d


def test_memory_is_bounded_by_the_setting() -> None:
    Q, C, d = 300, 400, 8
    module, rows, queries = calibrator(d, cosine=True), tokens(C, d, 2), tokens(Q, d, 3)
    module.memory = 0.25
    with TensorSizes() as sizes:
        module.predict(rows, queries)
    allowed = module.memory * 2**20 / 8  # float64 numbers
    assert allowed < Q * C < C * C
    assert all(numel <= allowed for shape, numel in sizes.seen.items() if shape != (Q, C))
    assert sum(numel > allowed / 2 for numel in sizes.seen.values()) > 1  # and the allowance is used


def test_without_classes_or_queries_there_is_nothing_to_say() -> None:
    module = calibrator(cosine=True)
    assert module.predict(tokens(0, 16, 2), tokens(3, 16, 3)).shape == (3, 0)
    assert module.predict(tokens(5, 16, 2), tokens(0, 16, 3)).shape == (0, 5)


def test_training_with_dropout_attends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout acts on every entry of every calibrated row, which the closed form never makes."""
    module = calibrator(cosine=True).train()
    rows, queries = tokens(5, 16, 2), tokens(3, 16, 3)
    assert not torch.equal(module(rows, queries), module(rows, queries))
    assert torch.equal(module.predict(rows, queries), module.predict(rows, queries))  # never random
    module.dropout.p = 0.0
    monkeypatch.setattr(module, "attend", lambda *_: pytest.fail("no attention per query is needed without dropout"))
    assert torch.equal(module(rows, queries), module(rows, queries))
