"""The loss of a real step of a session, against float64 loops, where the network has moved away from its teachers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fscil.benchmark import Benchmark
from fscil.engine import Stage
from fscil.methods import Method
from fscil.model import Model

MakeMethod = Callable[..., Method]
Tiny = Callable[..., Benchmark]
OLD = 4  # base classes; two more come in the first session, with two shots each


def moved(model: nn.Module, factor: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)


def step_of(stage: Stage) -> tuple[dict[str, Tensor], list[int]]:
    batch = {name: each[0] for name, each in stage.prepare(0).items()}
    return batch, batch["labels"].tolist()


def features_of(model: Model, images: Tensor) -> Tensor:
    with torch.no_grad():
        return normalize(model.encoder(images).double(), dim=1)


def entropy(logits: Tensor, label: int) -> float:
    return float(torch.logsumexp(logits, 0) - logits[label])


def test_finetuning_is_cross_entropy_of_a_linear_head_on_unit_features(
    make_method: MakeMethod, tiny_benchmark: Tiny, recording_engine: Any
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("finetune", benchmark, engine=recording_engine)
    method.learn_base(benchmark.sessions[0])
    method.learn_session(benchmark.sessions[1])
    model, stage = method.model, recording_engine.stages[-1]
    batch, labels = step_of(stage)
    assert sorted(labels) == [4, 4, 5, 5]  # shots alone
    moved(model, 1.1)
    logits = features_of(model, batch["images"]) @ model.rows.detach().double().T
    expected = np.mean([entropy(logits[i], label) for i, label in enumerate(labels)])
    assert float(stage.loss(batch)) == pytest.approx(expected, rel=1e-4)


def test_rebalancing_in_topics_form_learns_shots_and_keeps_the_direction_of_exemplars(
    make_method: MakeMethod, tiny_benchmark: Tiny, recording_engine: Any
) -> None:
    benchmark = tiny_benchmark()
    method = make_method(
        "rebalancing", benchmark, engine=recording_engine, less_forget=50.0, memory="8+1/class", statistics="global"
    )
    method.learn_base(benchmark.sessions[0])
    old_rows = method.model.rows.detach().double().clone()
    method.learn_session(benchmark.sessions[1])
    model, stage = method.model, recording_engine.stages[-1]
    batch, labels = step_of(stage)
    before = features_of(model, batch["images"])
    moved(model, 1.1)
    after = features_of(model, batch["images"])
    rows = torch.cat([old_rows, model.rows.detach().double()[OLD:]])  # old rows are fixed
    shots, exemplars = ([i for i, label in enumerate(labels) if (label >= OLD) == new] for new in (True, False))
    assert (len(shots), len(exemplars)) == (4, 8)
    turned = [1 - float(before[i] @ after[i]) for i in exemplars]
    assert np.mean(turned) > 1e-3
    expected = np.mean([entropy(rows @ after[i], labels[i]) for i in shots]) + 50 * np.mean(turned)
    assert float(stage.loss(batch)) == pytest.approx(expected, rel=1e-3)


def test_in_eeils_balanced_phase_old_tasks_have_the_old_teacher_and_new_classes_that_of_the_first_phase(
    make_method: MakeMethod, tiny_benchmark: Tiny, recording_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = tiny_benchmark()
    method = make_method(
        "eeil", benchmark, engine=recording_engine, loss="eeil", balanced_epochs=1, distillation=0.7, temperature=2.0,
        memory="8+1/class", statistics="global", old_rows="trained",
    )  # fmt: skip
    method.learn_base(benchmark.sessions[0])
    teacher = copy.deepcopy(method.model)
    after_first_phase = []
    record = recording_engine.train

    def train(stage: Stage) -> None:  # the first phase moves the network
        record(stage)
        if not stage.name.endswith("-balanced"):
            moved(method.model, 1.2)
            after_first_phase.append(copy.deepcopy(method.model))

    monkeypatch.setattr(recording_engine, "train", train)
    method.learn_session(benchmark.sessions[1])
    (first_phase,), model, stage = after_first_phase, method.model, recording_engine.stages[-1]
    batch, labels = step_of(stage)
    moved(model, 1.1)

    def logits_of(network: Model) -> Tensor:
        return features_of(network, batch["images"]) @ network.rows.detach().double().T

    own, old, new = logits_of(model), logits_of(teacher), logits_of(first_phase)
    assert not torch.allclose(old, new[:, :OLD], rtol=1e-2)
    expected = 0.0
    for i, label in enumerate(labels):
        expected += entropy(own[i], label)
        for task, taught in ((slice(0, OLD), old), (slice(OLD, OLD + 2), new)):
            wanted = (taught[i, task] / 2.0).softmax(0)
            expected -= 0.7 * float((wanted * (own[i, task] / 2.0).log_softmax(0)).sum())
    assert float(stage.loss(batch)) == pytest.approx(expected / len(labels), rel=1e-4)
