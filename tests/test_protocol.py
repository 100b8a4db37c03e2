from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from fscil import methods
from fscil.answers import Answers
from fscil.benchmark import Benchmark
from fscil.calibrators import changed_by_order
from fscil.engine import Engine
from fscil.methods import Context, Method
from fscil.protocol import run_protocol, run_sessions
from fscil.settings import make


def is_first(module: nn.Module) -> bool:
    """Whether it is an encoder's first layer, which sees every image, whatever is computed from it."""
    return isinstance(module, nn.Conv2d) and module.in_channels == 3


def learned(name: str, benchmark: Benchmark, **settings: Any) -> Method:
    cls = methods.get(name)
    values: dict[str, Any] = {
        "epochs": 1, "lr": 0.02, "batch": 16, "augmentation": "basic", "fake_way": 1, "fake_shot": 2, "fake_queries": 1,
        "meta_steps": 2, "session_epochs": 2, "gas_steps": 50, **settings,
    }  # fmt: skip
    engine = Engine(console=Console(quiet=True))
    method = cls(make(cls.Settings, values), Context(engine, benchmark.mean, benchmark.std))
    method.learn_base(benchmark.sessions[0])
    return method


def nothing(session: int, found: object) -> None:
    pass


def same(a: Answers, b: Answers) -> bool:
    return all(torch.equal(rows, b.tensors()[name]) for name, rows in a.tensors().items())


every_method = pytest.mark.parametrize("name", methods.names())


@every_method
def test_every_session_is_tested_on_all_classes_seen_so_far(
    tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    benchmark = tiny_benchmark(ways=(2, 1, 2), shots=(2, 3, 1))
    predictions = run_sessions(learned(name, benchmark), benchmark, nothing).predictions
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


@every_method
def test_sessions_are_reported_as_they_happen(tiny_benchmark: Callable[..., Benchmark], name: str) -> None:
    """run_sessions reports all answers so far, run_protocol only the session's predictions."""
    benchmark = tiny_benchmark()
    told: list[tuple[int, Tensor]] = []
    rows: list[tuple[str, int, Tensor]] = []
    predictions = run_sessions(
        learned(name, benchmark), benchmark, lambda i, so_far: told.append((i, so_far.predictions.clone()))
    ).predictions
    assert [i for i, _ in told] == [0, 1, 2]
    for i, so_far in told:
        assert torch.equal(so_far[: i + 1], predictions[: i + 1])
        assert (so_far[i + 1 :] == -1).all()

    method = learned(name, benchmark)
    found = run_protocol(method, benchmark, 1, lambda i, row: rows.append((method.engine.scope, i, row.clone())))
    assert [(scope, i) for scope, i, _ in rows] == [(scope, i) for scope in ("trial-1-", "") for i in range(3)]
    assert all(torch.equal(found[1 if scope else 0].predictions[i], row) for scope, i, row in rows)


@every_method
def test_sessions_that_are_done_are_not_done_again(tiny_benchmark: Callable[..., Benchmark], name: str) -> None:
    benchmark = tiny_benchmark()
    expected = run_sessions(learned(name, benchmark), benchmark, nothing)
    method, told = learned(name, benchmark), list[int]()
    method.learn_session(benchmark.sessions[1])
    done = {name: rows.clone() for name, rows in expected.tensors().items()}
    for name, rows in Answers.none_yet(3, len(benchmark.test_labels)).tensors().items():
        done[name][2] = rows[2]
    found = run_sessions(method, benchmark, lambda i, _: told.append(i), first=2, answers=Answers.from_tensors(done))
    assert told == [2]
    assert same(found, expected)


@every_method
def test_all_draws_start_from_the_same_base_model(tiny_benchmark: Callable[..., Benchmark], name: str) -> None:
    """A trial's predictions are those of a run of its own, whatever ran before it; the standard draw is last."""
    standard = tiny_benchmark()
    method, alone = learned(name, standard), learned(name, standard)
    found = run_protocol(method, standard, 3, nothing)
    assert list(found) == [1, 2, 3, 0]
    assert same(found[0], run_sessions(alone, standard, nothing))
    assert same(found[1], found[0])
    assert same(found[3], run_sessions(learned(name, standard), tiny_benchmark(trial=3), nothing))
    after, expected = method.state(), alone.state()
    assert expected.keys() == after.keys()
    assert all(torch.equal(expected[key], after[key]) for key in expected)
    assert method.engine.scope == ""


@pytest.mark.parametrize("calibrator", ["transformer", "deep-sets", "bi-lstm"])
def test_a_result_says_how_much_the_order_of_classes_matters(
    tiny_benchmark: Callable[..., Benchmark], calibrator: str
) -> None:
    benchmark = tiny_benchmark()
    method = learned("limit", benchmark, calibrator=calibrator)
    run_protocol(method, benchmark, 0, nothing)
    if calibrator != "bi-lstm":
        assert method.notes == []
        return
    model, queries = method.model, method.embed(benchmark.test_images)
    share = changed_by_order(model.calibrator, model.rows, queries)
    assert method.notes == [f"bi-lstm reads classes in their order: another one changes {100 * share:.1f} % of answers"]


def test_trials_draw_other_shots(tiny_benchmark: Callable[..., Benchmark]) -> None:
    benchmark = tiny_benchmark()
    method = learned("decoupled-cosine", benchmark)
    rows: dict[str, Tensor] = {}

    def on_session(i: int, predictions: Tensor) -> None:
        rows[method.engine.scope] = method.state()["rows"].clone()

    run_protocol(method, benchmark, 2, on_session)
    first, second, standard = rows["trial-1-"], rows["trial-2-"], rows[""]
    assert torch.equal(first, standard)
    assert torch.equal(first[:4], second[:4])
    assert not torch.allclose(first[4:], second[4:])


@pytest.mark.parametrize("name", [name for name in methods.names() if methods.get(name).fixed_encoder])
def test_trials_embed_the_test_images_once(tiny_benchmark: Callable[..., Benchmark], name: str) -> None:
    """What passes through the encoder in three trials and the standard draw: test images, and each draw's shots."""
    benchmark = tiny_benchmark()
    method = learned(name, benchmark)
    seen: list[int] = []
    hook = register_module_forward_pre_hook(  # of all encoders: every draw has its own model
        lambda module, inputs: seen.append(len(inputs[0])) if is_first(module) else None
    )
    try:
        run_protocol(method, benchmark, 3, nothing)
    finally:
        hook.remove()
    mirrored = 2 if getattr(method.settings, "mirror", False) else 1
    shots = sum(len(session.labels) for session in benchmark.sessions[1:])
    assert sum(seen) == mirrored * (len(benchmark.test_labels) + 4 * shots)
