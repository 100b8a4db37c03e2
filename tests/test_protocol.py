from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from fscil import methods
from fscil.benchmark import Benchmark
from fscil.engine import Engine
from fscil.methods import Context, Method
from fscil.protocol import run_sessions, run_trials
from fscil.settings import make


def learned(name: str, benchmark: Benchmark) -> Method:
    cls = methods.get(name)
    values: dict[str, Any] = {
        "epochs": 1, "lr": 0.02, "batch": 16, "augmentation": "basic", "fake_way": 1, "fake_shot": 2, "fake_queries": 1,
        "meta_steps": 2, "session_epochs": 2,
    }  # fmt: skip
    engine = Engine(console=Console(quiet=True))
    method = cls(make(cls.Settings, values), Context(engine, benchmark.mean, benchmark.std, "protocol"))
    method.learn_base(benchmark.sessions[0])
    return method


def nothing(session: int, predictions: Tensor, labels: Tensor) -> None:
    pass


every_method = pytest.mark.parametrize("name", methods.names())


@every_method
def test_every_session_is_tested_on_all_classes_seen_so_far(
    tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    benchmark = tiny_benchmark(ways=(2, 1, 2), shots=(2, 3, 1))
    predictions = run_sessions(learned(name, benchmark), benchmark, nothing)
    assert predictions.shape == (4, len(benchmark.test_labels))
    by_hand = learned(name, benchmark)
    for i, session in enumerate(benchmark.sessions):
        if i > 0:
            by_hand.learn_session(session)
        images, labels = benchmark.test(i)
        seen = benchmark.test_labels < benchmark.seen(i)
        assert torch.equal(benchmark.test_labels[seen], labels)
        assert torch.equal(predictions[i, seen], by_hand.logits(images).argmax(1))
        assert (predictions[i, ~seen] == -1).all()
        assert int(predictions[i].max()) < benchmark.seen(i)


def test_sessions_are_reported_as_they_happen(tiny_benchmark: Callable[..., Benchmark]) -> None:
    benchmark = tiny_benchmark()
    told: list[tuple[int, Tensor]] = []

    def on_session(i: int, predictions: Tensor, labels: Tensor) -> None:
        assert torch.equal(labels, benchmark.test_labels)
        told.append((i, predictions.clone()))

    predictions = run_sessions(learned("limit", benchmark), benchmark, on_session)
    assert [i for i, _ in told] == [0, 1, 2]
    assert all(torch.equal(predictions[i], row) for i, row in told)


@every_method
def test_trials_start_from_the_same_base_model(tiny_benchmark: Callable[..., Benchmark], name: str) -> None:
    """A trial's predictions are those of a run of its own, whatever ran before it; the method is left as it was."""
    standard = tiny_benchmark()
    method = learned(name, standard)
    before = {key: tensor.clone() for key, tensor in method.state().items()}
    found = dict(run_trials(method, standard, (1, 2, 3), nothing))
    assert list(found) == [1, 2, 3]
    assert torch.equal(found[1], run_sessions(learned(name, standard), standard, nothing))
    assert torch.equal(found[3], run_sessions(learned(name, standard), tiny_benchmark(trial=3), nothing))
    after = method.state()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert method.engine.scope == ""


def test_trials_draw_other_shots(tiny_benchmark: Callable[..., Benchmark]) -> None:
    benchmark = tiny_benchmark()
    method = learned("decoupled-cosine", benchmark)
    rows = []
    for _ in run_trials(method, benchmark, (1, 2), nothing):
        rows.append(method.state()["rows"].clone())
    assert torch.equal(rows[0][:4], rows[1][:4])
    assert not torch.allclose(rows[0][4:], rows[1][4:])


@pytest.mark.parametrize("name", [name for name in methods.names() if methods.get(name).fixed_encoder])
def test_trials_embed_the_test_images_once(tiny_benchmark: Callable[..., Benchmark], name: str) -> None:
    """Whatever passes through the encoder in three trials: the test images, and each trial's few shots."""
    benchmark = tiny_benchmark()
    method = learned(name, benchmark)
    seen: list[int] = []
    method.network.get_submodule("encoder").register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    list(run_trials(method, benchmark, (1, 2, 3), nothing))
    mirrored = 2 if getattr(method.settings, "mirror", False) else 1
    shots = sum(len(session.labels) for session in benchmark.sessions[1:])
    assert sum(seen) == mirrored * (len(benchmark.test_labels) + 3 * shots)
