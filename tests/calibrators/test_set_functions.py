"""Deep sets, the bidirectional LSTM and the graph, each against plain loops in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from fscil import calibrators
from fscil.calibrators import BiLSTM, Calibrator, DeepSets, Graph, changed_by_order
from fscil.errors import UserError
from tensor_sizes import TensorSizes

Array = NDArray[np.float64]
DIM = 6


def make(cls: type[Any], **options: Any) -> Any:
    torch.manual_seed(1)
    module = cls(DIM, **options).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():  # as training leaves them, not as they start
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return module


def tokens(n: int, seed: int) -> Tensor:
    return torch.randn(n, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def numbers_of(module: Calibrator) -> dict[str, Array]:
    return {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}


def normalised(x: Array, weights: dict[str, Array]) -> Array:
    centred = x - x.mean()
    scaled = centred / np.sqrt((centred**2).mean() + 1e-5)
    return np.asarray(scaled * weights["layer_norm.weight"] + weights["layer_norm.bias"])


def score(row: Array, query: Array, module: Any) -> float:
    product = float(row @ query)
    if module.cosine:
        product /= float(np.linalg.norm(row)) * (1.0 if module.query_length else float(np.linalg.norm(query)))
    return module.scale * product


def deep_sets(weights: dict[str, Array], rows: Array, query: Array) -> list[Array]:
    """All tokens, calibrated one by one; each sees the mean of h over the others."""

    def h(x: Array) -> Array:
        inside = np.maximum(weights["h.0.weight"] @ x + weights["h.0.bias"], 0)
        return np.asarray(weights["h.2.weight"] @ inside + weights["h.2.bias"])

    sequence, found = [*rows, query], []
    for i, x in enumerate(sequence):
        others = [h(other) for j, other in enumerate(sequence) if j != i]
        mean = sum(others) / len(others)
        inside = weights["g_own.weight"] @ x + weights["g_own.bias"] + weights["g_others.weight"] @ mean
        g = weights["g_out.weight"] @ np.maximum(inside, 0) + weights["g_out.bias"]
        found.append(normalised(x + g, weights))
    return found


def lstm(weights: dict[str, Array], which: str, sequence: list[Array]) -> list[Array]:
    """The states after each token; gates are in torch's order: input, forget, cell, output."""

    def sigmoid(x: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-x)))

    state, cell, found = np.zeros(DIM), np.zeros(DIM), []
    for x in sequence:
        gates = weights[f"{which}.weight_ih_l0"] @ x + weights[f"{which}.bias_ih_l0"]
        gates = gates + weights[f"{which}.weight_hh_l0"] @ state + weights[f"{which}.bias_hh_l0"]
        let_in, keep, new, out = np.split(gates, 4)
        cell = sigmoid(keep) * cell + sigmoid(let_in) * np.tanh(new)
        state = sigmoid(out) * np.tanh(cell)
        found.append(state)
    return found


def bi_lstm(weights: dict[str, Array], rows: Array, query: Array) -> list[Array]:
    sequence = [*rows, query]
    ahead, back = lstm(weights, "f", sequence), lstm(weights, "b", sequence[::-1])[::-1]
    return [normalised(x + f + b, weights) for x, f, b in zip(sequence, ahead, back, strict=True)]


def graph(weights: dict[str, Array], rows: Array, query: Array) -> list[Array]:
    """Rows attend to rows; the query stays as it is."""
    keys, values = rows @ weights["W_K.weight"].T, rows @ weights["W_V.weight"].T
    found = []
    for row in rows:
        scores = [math.exp(float(weights["W_Q.weight"] @ row @ key) / math.sqrt(len(key))) for key in keys]
        attended = sum(s / sum(scores) * value for s, value in zip(scores, values, strict=True))
        found.append(normalised(row + weights["W_FC.weight"] @ attended + weights["W_FC.bias"], weights))
    return [*found, query]


CASES: list[Any] = [
    (DeepSets, deep_sets, {}),
    (DeepSets, deep_sets, {"cosine": True, "scale": 16.0, "hidden": 5}),
    (DeepSets, deep_sets, {"cosine": True, "query_length": True}),
    (BiLSTM, bi_lstm, {}),
    (BiLSTM, bi_lstm, {"cosine": True, "scale": 16.0}),
    (BiLSTM, bi_lstm, {"cosine": True, "query_length": True}),
    (Graph, graph, {}),
    (Graph, graph, {"cosine": True, "scale": 16.0, "hidden": 4}),
    (Graph, graph, {"cosine": True, "query_length": True}),
]


@pytest.mark.parametrize("C", [1, 2, 5])
@pytest.mark.parametrize(("cls", "reference", "options"), CASES)
def test_logits_are_those_of_plain_loops(
    cls: type[Calibrator], reference: Any, options: dict[str, Any], C: int
) -> None:
    module, rows, queries = make(cls, **options), tokens(C, 2), tokens(3, 3)
    weights, found = numbers_of(module), module(rows, queries)
    for i, query in enumerate(queries.numpy()):
        *calibrated, asked = reference(weights, rows.numpy(), query)
        expected = [score(row, asked, module) for row in calibrated]
        assert np.allclose(found[i].detach().numpy(), expected, atol=1e-9)


COMMON = {"dropout": 0.0, "cosine": True, "scale": 16.0, "memory": 32.0}
ATTENTION = {"W_Q.weight": (5, 6), "W_K.weight": (5, 6), "W_V.weight": (5, 6), "W_FC.weight": (6, 5), "W_FC.bias": (6,)}
LSTM = {"weight_ih_l0": (24, 6), "weight_hh_l0": (24, 6), "bias_ih_l0": (24,), "bias_hh_l0": (24,)}
SAVED: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "bi-lstm": (COMMON, {f"{which}.{name}": shape for which in "fb" for name, shape in LSTM.items()}),
    "deep-sets": (
        {"hidden": 5, **COMMON},
        {
            "h.0.weight": (5, 6), "h.0.bias": (5,), "h.2.weight": (6, 5), "h.2.bias": (6,), "g_own.weight": (5, 6),
            "g_own.bias": (5,), "g_others.weight": (5, 6), "g_out.weight": (6, 5), "g_out.bias": (6,),
        },
    ),
    "graph": ({"hidden": 5, **COMMON}, ATTENTION),
    "transformer": ({"hidden": 5, **COMMON, "slots": 7}, {"placeholders": (7, 6), **ATTENTION}),
}  # fmt: skip


@pytest.mark.parametrize("name", SAVED)
def test_models_that_were_saved_with_earlier_versions_still_load(name: str) -> None:
    """Names, shapes and order of the parameters: checkpoints hold momenta in that order."""
    options, shapes = SAVED[name]
    module = calibrators.build(name, DIM, **options)
    assert module.options.items() >= options.items()
    found = [(each, tuple(parameter.shape)) for each, parameter in module.named_parameters()]
    assert found == [*shapes.items(), ("layer_norm.weight", (6,)), ("layer_norm.bias", (6,))]
    assert list(module.state_dict()) == [each for each, _ in found]


def test_states_of_a_bi_lstm_have_the_size_of_embeddings() -> None:
    with pytest.raises(UserError, match="have the size of embeddings, 6; leave out hidden=5"):
        calibrators.build("bi-lstm", DIM, hidden=5)


@pytest.mark.parametrize("cls", [DeepSets, BiLSTM, Graph])
def test_dropout_acts_in_training_alone(cls: type[Calibrator]) -> None:
    module, rows, queries = make(cls, dropout=0.5), tokens(5, 2), tokens(3, 3)
    plain = module(rows, queries)
    module.train()
    assert not torch.allclose(module(rows, queries), plain, atol=1e-3)
    assert torch.allclose(module.predict(rows, queries), plain)


@pytest.mark.parametrize("cls", [DeepSets, BiLSTM, Graph])
def test_every_weight_learns(cls: type[Calibrator]) -> None:
    module = make(cls)
    module(tokens(5, 2), tokens(3, 3)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in module.parameters())


@pytest.mark.parametrize("cls", [DeepSets, pytest.param(BiLSTM, marks=pytest.mark.slow), Graph])
@torch.no_grad()
def test_many_classes_and_queries_are_computed_in_parts(cls: type[Calibrator]) -> None:
    """With little memory: the same logits, and no tensor of all queries x classes x d."""
    rows, queries = tokens(700, 2), tokens(90, 3)
    module, sparing = make(cls, memory=1024.0), make(cls, memory=1.0)
    with TensorSizes() as sizes:
        found = sparing.predict(rows, queries)
    assert torch.allclose(found, module.predict(rows, queries), atol=1e-9)
    assert sizes.largest * 8 <= 2**20


def test_the_answers_that_another_order_changes_are_counted() -> None:
    """A calibrator that prefers the first row by far changes its answer whenever another class comes first."""

    class First(Calibrator):
        permutation_equivariant = False

        @property
        def options(self) -> dict[str, Any]:
            return {}

        def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
            return torch.eye(len(rows))[:1].expand(len(queries), -1)

    rows, queries = tokens(4, 2), tokens(20, 3)
    generator, elsewhere = torch.Generator().manual_seed(3), 0
    for _ in range(50):
        elsewhere += int(torch.randperm(4, generator=generator)[0]) != 0
    assert changed_by_order(First(), rows, queries, orders=50, seed=3) == pytest.approx(elsewhere / 50)


@pytest.mark.parametrize("name", calibrators.names())
def test_only_the_calibrators_that_say_so_depend_on_the_order(name: str) -> None:
    torch.manual_seed(1)
    module = calibrators.build(name, DIM // 2 if name == "paired" else DIM).double().eval()
    share = changed_by_order(module, tokens(8, 2), tokens(200, 3))
    assert (share > 0) == (not module.permutation_equivariant)
