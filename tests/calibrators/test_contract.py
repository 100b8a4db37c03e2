"""What every registered calibrator promises, and the registry."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fscil import calibrators
from fscil.calibrators import Calibrator, Cosine, Transformer, kept_terms
from fscil.errors import UserError

DIM = 12  # of rows and queries

# options that the calibrators are checked with; those not listed here use their defaults
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "bi-lstm": [{"cosine": True, "scale": 16.0}, {"dropout": 0.2}],
    "cosine": [{"scale": 16.0}],
    "deep-sets": [{"cosine": True, "scale": 16.0}, {"hidden": 7, "dropout": 0.2}],
    "graph": [{"cosine": True, "scale": 16.0}, {"hidden": 7, "dropout": 0.2}],
    "learned-scale": [{"scale": 16.0}],
    "paired": [{"scale": 16.0, "trust": 0.7, "common": 0.4}],
    "transformer": [
        {"cosine": True, "scale": 16.0},
        {"cosine": False, "hidden": 7, "dropout": 0.2},
        {"cosine": True, "scale": 16.0, "slots": 12},
        {"cosine": True, "scale": 2.0, "query_length": True},
    ],
    "emd": [{"cells": 4, "scale": 16.0, "solver": "sinkhorn", "rounds": 2, "iterations": 2}],
    "virtual": [{"virtual": 5, "scale": 16.0, "eta": 0.3}, {"eta": 0.0}, {"eta": 1.0}],
}
CASES = [(name, options) for name in calibrators.names() for options in OPTIONS.get(name, [{}])]
of_all = pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{name} {options}" for name, options in CASES])


def dim_of(name: str, options: dict[str, Any]) -> int:
    """Of embeddings; rows and queries of a calibrator with two inputs or cells are that many times as long."""
    module = calibrators.build(name, DIM, **options)
    return DIM // (2 if module.two_inputs else module.cells or 1)


def build(name: str, options: dict[str, Any]) -> Calibrator:
    """In eval mode, with parameters as training leaves them, not as they start."""
    torch.manual_seed(1)
    module = calibrators.build(name, dim_of(name, options), **options).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return module


def tokens(n: int, seed: int) -> Tensor:
    return torch.randn(n, DIM, generator=torch.Generator().manual_seed(seed))


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=1e-5 * float(b.abs().max()))


@of_all
@torch.no_grad()
def test_permuted_rows_give_permuted_logits_where_that_is_declared(name: str, options: dict[str, Any]) -> None:
    module, rows, queries = build(name, options), tokens(9, 2), tokens(4, 3)
    assert isinstance(module.permutation_equivariant, bool)
    for seed in range(5):
        order = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
        for function in (module, module.predict):
            same = close(function(rows[order], queries), function(rows, queries)[:, order])
            assert same == module.permutation_equivariant


@of_all
def test_prediction_is_the_forward_pass_without_gradients(name: str, options: dict[str, Any]) -> None:
    module, queries = build(name, options), tokens(4, 3)
    rows = tokens(9, 2).requires_grad_()
    found = module.predict(rows, queries)
    assert not found.requires_grad
    assert module(rows, queries).requires_grad
    assert close(found, module(rows, queries).detach())
    assert torch.equal(module.train().predict(rows, queries), found)  # never random


@of_all
@torch.no_grad()
def test_the_same_module_takes_any_number_of_classes_and_queries(name: str, options: dict[str, Any]) -> None:
    module = build(name, options)
    shapes = {key: tensor.shape for key, tensor in module.state_dict().items()}
    for C in (1, 2, 40, 3):
        together = module.predict(tokens(C, 2), tokens(5, 3))
        assert together.shape == (5, C)
        apart = torch.cat([module(tokens(C, 2), query[None]) for query in tokens(5, 3)])
        assert close(apart, together)
    assert module.predict(tokens(0, 2), tokens(5, 3)).shape == (5, 0)
    assert module.predict(tokens(4, 2), tokens(0, 3)).shape == (0, 4)
    assert {key: tensor.shape for key, tensor in module.state_dict().items()} == shapes


@of_all
@torch.no_grad()
def test_options_and_state_make_the_same_module_again(name: str, options: dict[str, Any]) -> None:
    module = build(name, options)
    assert module.options.items() >= options.items()
    again = calibrators.build(name, dim_of(name, options), **json.loads(json.dumps(module.options))).eval()
    again.load_state_dict(module.state_dict())
    assert again.options == module.options
    assert torch.equal(again(tokens(9, 2), tokens(4, 3)), module(tokens(9, 2), tokens(4, 3)))


class Head(nn.Module):
    """A calibrator whose classes are fixed, as in a program that is exported."""

    rows: Tensor

    def __init__(self, calibrator: Calibrator, rows: Tensor, how: str) -> None:
        super().__init__()
        self.calibrator, self.how = calibrator, how
        self.register_buffer("rows", rows)

    def forward(self, queries: Tensor) -> Tensor:
        return getattr(self.calibrator, self.how)(self.rows, queries)


@of_all
@pytest.mark.parametrize("how", ["forward", "predict"])
@torch.no_grad()
def test_exported_programs_take_any_number_of_queries(how: str, name: str, options: dict[str, Any]) -> None:
    head = Head(build(name, options), tokens(9, 2), how).eval()
    if how == "predict":
        head(tokens(1, 4))  # kept terms are not part of the program
    batch = torch.export.Dim("batch")
    program = torch.export.export(head, (tokens(3, 3),), dynamic_shapes=({0: batch},)).module()
    for n in (1, 2, 64):
        assert close(program(tokens(n, n)), head(tokens(n, n)))


class OpenHead(nn.Module):
    """A calibrator whose classes are given with the queries."""

    def __init__(self, calibrator: Calibrator) -> None:
        super().__init__()
        self.calibrator = calibrator

    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        return self.calibrator.predict(rows, queries)


# torch unrolls an LSTM over the classes, and there are fewer placeholders the more classes there are
OPEN = [(name, options) for name, options in CASES if name != "bi-lstm" and "slots" not in options]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), OPEN, ids=[f"{name} {options}" for name, options in OPEN])
@torch.no_grad()
def test_exported_programs_take_any_number_of_classes(name: str, options: dict[str, Any]) -> None:
    head = OpenHead(build(name, options)).eval()
    shapes = ({0: torch.export.Dim("classes")}, {0: torch.export.Dim("batch")})
    program = torch.export.export(head, (tokens(9, 2), tokens(3, 3)), dynamic_shapes=shapes).module()
    for n in (2, 30, 1500):
        assert close(program(tokens(n, n), tokens(4, 4)), head(tokens(n, n), tokens(4, 4)))


@torch.no_grad()
def test_exported_programs_do_not_split_queries() -> None:
    """With so little memory, predictions of many queries are computed in parts; the program has one size for all."""
    head = Head(build("transformer", {"cosine": True, "memory": 1e-3}), tokens(40, 2), "predict").eval()
    batch = torch.export.Dim("batch")
    program = torch.export.export(head, (tokens(200, 3),), dynamic_shapes=({0: batch},)).module()
    for n in (3, 500):
        assert close(program(tokens(n, n)), head(tokens(n, n)))


def in_threads(n: int, function: Callable[[int], Tensor]) -> list[Tensor]:
    """function(0), ..., function(n - 1), all started at the same moment"""
    start = threading.Barrier(n)

    def run(i: int) -> Tensor:
        start.wait(60)
        return function(i)

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(run, range(n)))


@of_all
def test_threads_predict_as_one_thread_does(name: str, options: dict[str, Any]) -> None:
    """Each asks with one image, then with several, starting before any terms are kept and after a class was taught."""
    module, rows = build(name, options), tokens(50, 2)
    for seen in (rows[:-1], rows):
        alone = copy.deepcopy(module)

        def answers(calibrator: Calibrator, i: int, seen: Tensor = seen) -> Tensor:
            asked = [tokens(n, 10 * i + n) for n in (1, 3, 1, 8)]
            return torch.cat([calibrator.predict(seen, queries) for queries in asked])

        expected = [answers(alone, i) for i in range(8)]
        found = in_threads(8, lambda i, answers=answers: answers(module, i))
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("function", ["make", "append", "remove"])
def test_two_threads_update_kept_terms_at_the_same_time(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, rows, queries = build("transformer", {}), tokens(50, 2), tokens(4, 3)
    if function != "make":
        module.predict(rows[:-2] if function == "append" else torch.cat([rows[:7], tokens(1, 9), rows[7:]]), queries)
    expected = copy.deepcopy(module).predict(rows, queries)
    both, real = threading.Barrier(2), getattr(kept_terms, function)

    def when_both_are_here(*arguments: Any) -> Any:
        both.wait(60)
        found = real(*arguments)
        both.wait(60)
        return found

    monkeypatch.setattr(kept_terms, function, when_both_are_here)
    found = in_threads(2, lambda _: module.predict(rows, queries))
    monkeypatch.undo()
    assert all(torch.equal(each, expected) for each in (*found, module.predict(rows, queries)))


def test_cosine_is_that_of_the_other_methods_to_the_bit() -> None:
    module, rows, queries = Cosine(DIM, scale=16.0), tokens(9, 2), tokens(5, 3)
    assert list(module.parameters()) == []
    expected = torch.stack([16 * torch.cosine_similarity(query[None], rows) for query in queries])
    assert torch.allclose(module(rows, queries), expected, atol=1e-5)
    assert torch.equal(module.predict(rows, queries), module(rows, queries))


def test_a_built_calibrator_is_that_of_its_class() -> None:
    def weights(make: Callable[[], Calibrator]) -> Tensor:
        torch.manual_seed(3)
        return torch.cat([p.flatten() for p in make().parameters()])

    assert torch.equal(
        weights(lambda: calibrators.build("transformer", DIM, dropout=0.0, cosine=True, scale=16.0, memory=8.0)),
        weights(lambda: Transformer(DIM, dropout=0.0, cosine=True, scale=16.0, memory=8.0)),
    )


def test_unknown_calibrator_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown calibrator 'transformr': did you mean 'transformer'\?"):
        calibrators.build("transformr", DIM)


def test_unknown_options_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"^the calibrator 'cosine' .*'dropout'.*; it takes scale$"):
        calibrators.build("cosine", DIM, dropout=0.5)


def test_other_packages_add_calibrators(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = EntryPoint("mine", "fscil.calibrators.cosine:Cosine", "fscil.calibrators")

    def points(group: str, name: str = "mine") -> list[EntryPoint]:
        return [mine] if (group, name) == ("fscil.calibrators", "mine") else []

    monkeypatch.setattr(calibrators, "entry_points", points)
    assert calibrators.names() == sorted([*calibrators.BUILT_IN, "mine"])
    assert calibrators.build("mine", DIM, scale=4.0).options == {"scale": 4.0}
