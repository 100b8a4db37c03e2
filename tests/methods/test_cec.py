"""CEC's meta-training, and that its tasks and LIMIT's can be exchanged."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import calibrator_reference as reference
from fscil.benchmark import Benchmark
from fscil.config import resolve
from fscil.engine.seeds import seed_for
from fscil.episodes import PseudoShape, class_members, sample_pseudo_tasks
from fscil.errors import UserError
from fscil.methods import Method

MakeMethod = Callable[..., Method]
Array = NDArray[np.float64]


@pytest.fixture
def benchmark(tiny_benchmark: Callable[..., Benchmark]) -> Benchmark:
    return tiny_benchmark(base=5)


@pytest.fixture(autouse=True)
def without_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")


def rows_alone(weights: dict[str, Array], rows: Array) -> Array:
    """CEC's paper: classifiers attend to classifiers, with the layer of its code."""
    found = []
    for row in rows:
        projected = weights["W_Q.weight"] @ row
        scores = np.array([projected @ (weights["W_K.weight"] @ other) / math.sqrt(len(row)) for other in rows])
        alpha = np.exp(scores) / np.exp(scores).sum()
        attended = sum(a * (weights["W_V.weight"] @ other) for a, other in zip(alpha, rows, strict=True))
        x = row + weights["W_FC.weight"] @ attended + weights["W_FC.bias"]
        x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        found.append(x * weights["layer_norm.weight"] + weights["layer_norm.bias"])
    return np.stack(found)


def loss_by_hand(method: Any, benchmark: Benchmark, shape: PseudoShape, segment: int, step: int) -> float:
    """CEC's loss of one pseudo-incremental task, with one image, one query and one class at a time."""
    session, model = benchmark.sessions[0], method.model
    members, counts = class_members(session.labels, len(session.classes))
    drawn = torch.Generator().manual_seed(seed_for(method.engine.seed, "meta-train", segment))
    tasks = sample_pseudo_tasks(members, counts, shape, method.settings.meta_batch_steps, drawn)

    def embedding(image: int, turns: int) -> Array:
        return method.embed(session.images[image].rot90(turns, (1, 2))[None])[0].double().numpy()

    prototypes, queries = [], []
    for rotated in (False, True):
        for n in range(shape.way):
            turns = int(tasks.turns[step, n]) if rotated else 0
            each = [embedding(int(i), turns) for i in tasks.images[step, n]]
            prototypes.append(sum(each[: shape.shot]) / shape.shot)
            queries += [(len(prototypes) - 1, query) for query in each[shape.shot :]]
    weights, losses = reference.weights_of(model.calibrator), []
    for label, query in queries:
        if method.settings.calibrator == "graph":
            rows = rows_alone(weights, np.stack(prototypes))
            logits = 16 * rows @ query / (np.linalg.norm(rows, axis=1) * np.linalg.norm(query))
        else:
            logits = reference.logits(weights, np.stack(prototypes), query, cosine=True, scale=16.0)
        losses.append(math.log(sum(math.exp(z) for z in logits)) - logits[label])
    assert len(losses) == 2 * shape.way * shape.queries
    return sum(losses) / len(losses)


@pytest.mark.parametrize("encoder_lr", [2e-3, 0.0])
@pytest.mark.parametrize("calibrator", ["transformer", "graph"])
def test_loss_is_that_of_base_classes_and_rotated_ones(
    make_method: MakeMethod, recording_engine: Any, benchmark: Benchmark, calibrator: str, encoder_lr: float
) -> None:
    method = make_method(
        "cec", benchmark, engine=recording_engine, calibrator=calibrator, fake_way=3, fake_shot=2, fake_queries=2,
        augmentation="none", encoder_lr=encoder_lr,
    )  # fmt: skip
    method.learn_base(benchmark.sessions[0])
    stage = recording_engine.stages[-1]
    for segment, step in ((0, 0), (1, 1)):
        batch = {name: tensor[step] for name, tensor in stage.prepare(segment).items()}
        expected = loss_by_hand(method, benchmark, PseudoShape(3, 2, 2), segment, step)
        assert float(stage.loss(batch)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("tasks", ["fake", "pseudo"])
@pytest.mark.parametrize("encoder_lr", [2e-4, 0.0])
def test_cec_and_limit_take_the_same_tasks(
    make_method: MakeMethod, benchmark: Benchmark, tasks: str, encoder_lr: float
) -> None:
    """With the rest of their settings alike, CEC is LIMIT, with either sampler."""
    shared = {
        "tasks": tasks, "fake_way": 2, "dropout": 0.0, "rows": "means", "encoder_lr": encoder_lr, "rows_lr": 0.0,
        "calibrator_lr": 5e-3, "refresh_every": 2,
    }  # fmt: skip
    cec, limit = make_method("cec", benchmark, **shared), make_method("limit", benchmark, logits="cosine", **shared)
    for method in (cec, limit):
        method.learn_base(benchmark.sessions[0])
        method.learn_session(benchmark.sessions[1])
    assert cec.state().keys() == limit.state().keys()
    assert all(torch.equal(cec.state()[name], limit.state()[name]) for name in cec.state())


@pytest.mark.parametrize("name", ["cec", "limit"])
def test_rows_after_pseudo_incremental_tasks_are_class_means(
    make_method: MakeMethod, benchmark: Benchmark, name: str
) -> None:
    """Of the encoder as it is then; the classifier's own rows had no part in the tasks."""
    base = benchmark.sessions[0]
    method = make_method(name, benchmark, tasks="pseudo", encoder_lr=0.01)
    method.learn_base(base)
    embeddings = method.embed(base.images)
    means = torch.stack([embeddings[base.labels == label].mean(0) for label in base.classes])
    assert torch.allclose(method.state()["rows"], means, atol=1e-5)


def test_rates_and_their_halving_are_those_of_cecs_code(
    make_method: MakeMethod, recording_engine: Any, benchmark: Benchmark
) -> None:
    settings = resolve("cec", "cifar100").settings
    own = ("encoder_lr", "rows_lr", "calibrator_lr", "halve_every", "momentum", "weight_decay", "nesterov")
    method = make_method("cec", benchmark, engine=recording_engine, **{key: settings[key] for key in own})
    method.learn_base(benchmark.sessions[0])
    stage, model = recording_engine.stages[-1], method.model
    rates = {id(p): group.lr for group in stage.groups for p in group.parameters}
    assert {rates[id(p)] for p in model.encoder.parameters()} == {2e-3}
    assert {rates[id(p)] for p in model.calibrator.parameters()} == {2e-4}
    assert id(model.rows) not in rates
    assert [stage.schedule(20 * 50 * i) for i in range(5)] == [1, 0.5, 0.25, 0.125, 0.0625]
    assert (stage.momentum, stage.weight_decay, stage.nesterov) == (0.9, 5e-4, True)
    shown = {key: settings[key] for key in ("fake_way", "fake_shot", "fake_queries", "meta_steps", "tasks", "dropout")}
    assert shown == {
        "fake_way": 15, "fake_shot": 1, "fake_queries": 15, "meta_steps": 5000, "tasks": "pseudo", "dropout": 0.0
    }  # fmt: skip


def test_cec_paper_has_its_own_pretraining() -> None:
    found = resolve("cec-paper", "cifar100").settings
    assert (found["epochs"], found["batch"], found["lr"], found["milestones"]) == (100, 128, 0.1, "60,70")
    assert (found["calibrator"], found["augmentation"]) == ("graph", "basic")
    assert resolve("cec-paper", "cub200").settings["milestones"] == "30,40,60,80"


def test_settings_that_cannot_work_are_refused_before_pretraining(
    make_method: MakeMethod, recording_engine: Any, benchmark: Benchmark
) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"fake_way": 6}, "draw 6 base classes, but there are 5; lower fake_way"),
        ({"fake_shot": 8}, "lower fake_shot"),
        ({"tasks": "fake", "fake_way": 3}, "lower fake_way or fake_phases"),
        ({"encoder_lr": 0.0, "calibrator_lr": 0.0, "rows_lr": 0.1}, "every learning rate is 0"),
        (
            {"milestones": "60;70"},
            "^milestones=60;70 is no list of whole numbers; write for instance milestones=60,70$",
        ),
        ({"meta_milestones": "1,-2"}, "^meta_milestones=1,-2 is no list of whole numbers"),
    ]
    for settings, message in bad:
        with pytest.raises(UserError, match=message):
            make_method("cec", benchmark, engine=recording_engine, **settings).learn_base(benchmark.sessions[0])
    assert not hasattr(recording_engine, "stages")
