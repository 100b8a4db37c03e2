"""LIMIT's meta-training: Algorithm 2 and the switches of the ablation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

import calibrator_reference as reference
from fscil.benchmark import Benchmark, Session
from fscil.engine import Engine
from fscil.engine.seeds import seed_for
from fscil.episodes import TaskShape, class_members, sample_fake_tasks
from fscil.errors import UserError
from fscil.methods import Method

MakeMethod = Callable[..., Method]


@pytest.fixture
def benchmark(tiny_benchmark: Callable[..., Benchmark]) -> Benchmark:
    return tiny_benchmark(base=7)


def loss_by_hand(method: Any, session: Session, shape: TaskShape, segment: int, step: int) -> float:
    """Algorithm 2 with one image, one query and one class at a time."""
    model, settings = method.model, method.settings
    members, counts = class_members(session.labels, len(session.classes))
    drawn = torch.Generator().manual_seed(seed_for(method.engine.seed, "meta-train", segment))
    tasks = sample_fake_tasks(members, counts, shape, settings.meta_batch_steps, drawn)
    weights = reference.weights_of(model.calibrator)

    def embedding(parents: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
        picture = torch.stack([session.images[int(i)].double() for i in parents.flatten()]).mean(0).round()
        return method.embed(picture.to(torch.uint8)[None])[0].double().numpy()

    classifier = [model.rows[int(label)].detach().double().numpy() for label in tasks.old_classes[step]]
    risk = 0.0
    for c in range(shape.phases):
        for n in range(shape.way):  # Eq. (5): rows of earlier phases stay as they are
            shots = [embedding(tasks.supports[step, c, n, k]) for k in range(shape.shot)]
            classifier.append(sum(shots) / len(shots))  # Eq. (prototype)
        losses = []
        rows = np.stack(classifier)
        queries = [*tasks.old_queries[c][step], *tasks.new_queries[c][step]]
        assert len(queries) == len(classifier)
        for row, of_class in enumerate(queries):
            for image in of_class:
                logits = reference.logits(
                    weights, rows, embedding(image), cosine=settings.logits == "cosine",
                    scale=settings.scale if settings.logits == "cosine" else settings.scale / model.encoder.dim,
                )  # fmt: skip
                losses.append(math.log(sum(math.exp(z) for z in logits)) - logits[row])
        risk += sum(losses) / len(losses)
    return risk  # Eq. (9): summed over the phases


@pytest.mark.parametrize("encoder_lr", [2e-4, 0.0])
@pytest.mark.parametrize("logits", ["inner", "cosine"])
@pytest.mark.parametrize("phases", [1, 3])
def test_loss_is_the_papers(
    make_method: MakeMethod,
    recording_engine: Any,
    benchmark: Benchmark,
    monkeypatch: pytest.MonkeyPatch,
    phases: int,
    logits: str,
    encoder_lr: float,
) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")
    shape = TaskShape(phases, 2, 2, 2)
    method = make_method(
        "limit", benchmark, engine=recording_engine, fake_classes="base", fake_phases=phases, fake_way=2, fake_shot=2,
        fake_queries=2, logits=logits, augmentation="none", rows="trained", encoder_lr=encoder_lr,
    )  # fmt: skip
    method.learn_base(benchmark.sessions[0])
    stage = recording_engine.stages[-1]
    assert stage.name == "meta-train"
    for segment, step in ((0, 0), (1, 1)):
        batch = {name: tensor[step] for name, tensor in stage.prepare(segment).items()}
        expected = loss_by_hand(method, benchmark.sessions[0], shape, segment, step)
        assert float(stage.loss(batch)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("encoder_lr", [2e-4, 0.0])
def test_loss_with_features_raised_to_a_power(
    make_method: MakeMethod,
    recording_engine: Any,
    benchmark: Benchmark,
    monkeypatch: pytest.MonkeyPatch,
    encoder_lr: float,
) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")
    method = make_method(
        "limit", benchmark, engine=recording_engine, fake_classes="base", augmentation="none", power=0.5,
        encoder_lr=encoder_lr,
    )  # fmt: skip
    method.learn_base(benchmark.sessions[0])
    stage = recording_engine.stages[-1]
    batch = {name: tensor[0] for name, tensor in stage.prepare(0).items()}
    expected = loss_by_hand(method, benchmark.sessions[0], TaskShape(2, 1, 2, 1), 0, 0)
    assert float(stage.loss(batch)) == pytest.approx(expected, rel=1e-4)


def test_loss_of_blended_classes(
    make_method: MakeMethod, recording_engine: Any, benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")
    method = make_method(
        "limit", benchmark, engine=recording_engine, fake_classes="mixed", fake_phases=3, fake_way=1, fake_shot=2,
        fake_queries=1, augmentation="none",
    )  # fmt: skip
    method.learn_base(benchmark.sessions[0])
    stage = recording_engine.stages[-1]
    batch = {name: tensor[1] for name, tensor in stage.prepare(0).items()}
    expected = loss_by_hand(method, benchmark.sessions[0], TaskShape(3, 1, 2, 1, "mixed"), 0, 1)
    assert float(stage.loss(batch)) == pytest.approx(expected, rel=1e-4)


def state(method: Method, part: str) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in method.state().items() if name.startswith(part)}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a) and a.keys() == b.keys()


def statistics(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if "running" in name or "num_batches" in name}


@pytest.fixture
def learned(
    make_method: MakeMethod, benchmark: Benchmark, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Method]:
    """learned(name, **settings): a method after its base session; all of a test share one pre-trained encoder."""
    monkeypatch.setenv("FSCIL_CACHE", str(tmp_path / "cache"))

    def learn(name: str, **settings: Any) -> Method:
        method = make_method(name, benchmark, **settings)
        method.learn_base(benchmark.sessions[0])
        return method

    return learn


@pytest.fixture
def before(learned: Callable[..., Method]) -> Method:
    """What LIMIT starts from: the pre-trained encoder and its trained rows."""
    return learned("decoupled-cosine", rows="trained")


@pytest.mark.parametrize("settings", [{"fake_classes": "base"}, {"fake_classes": "mixed"}, {"tasks": "plain"}])
def test_fake_tasks_and_plain_batches_teach_encoder_rows_and_calibrator(
    learned: Callable[..., Method], before: Method, settings: dict[str, Any]
) -> None:
    once, longer = (learned("limit", rows="trained", meta_steps=n, **settings) for n in (2, 4))
    for method in (once, longer):
        assert not same(state(method, "encoder."), state(before, "encoder."))
        assert not same(state(method, "rows"), state(before, "rows"))
    assert not same(state(once, "calibrator."), state(longer, "calibrator."))


@pytest.mark.parametrize("settings", [{"fake_classes": "base"}, {"fake_classes": "mixed"}, {"tasks": "plain"}])
def test_encoder_lr_of_zero_leaves_the_encoder_alone(
    learned: Callable[..., Method], before: Method, settings: dict[str, Any]
) -> None:
    method = learned("limit", rows="trained", encoder_lr=0.0, **settings)
    assert same(state(method, "encoder."), state(before, "encoder."))
    assert not same(state(method, "rows"), state(before, "rows"))


@pytest.mark.parametrize("tasks", ["fake", "plain"])
def test_rows_lr_of_zero_leaves_the_rows_alone(learned: Callable[..., Method], before: Method, tasks: str) -> None:
    method = learned("limit", rows="trained", rows_lr=0.0, tasks=tasks)
    assert same(state(method, "rows"), state(before, "rows"))
    assert not same(state(method, "encoder."), state(before, "encoder."))


def test_plain_loss_is_that_of_all_rows_as_they_are(
    make_method: MakeMethod, recording_engine: Any, benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ablation: base images, and no row is replaced by a prototype."""
    monkeypatch.setenv("FSCIL_CACHE", "off")
    method: Any = make_method("limit", benchmark, engine=recording_engine, tasks="plain", augmentation="none", batch=9)
    method.learn_base(benchmark.sessions[0])
    stage = recording_engine.stages[-1]
    batch = {name: tensor[1] for name, tensor in stage.prepare(0).items()}
    rows, weights = method.model.rows.detach().double().numpy(), reference.weights_of(method.model.calibrator)
    losses = []
    for image, label in zip(batch["images"], batch["labels"], strict=True):
        query = method.embed(image[None])[0].double().numpy()
        logits = reference.logits(weights, rows, query, cosine=False, scale=method.settings.scale / 64)
        losses.append(math.log(sum(math.exp(z) for z in logits)) - logits[int(label)])
    assert len(losses) == 9
    assert float(stage.loss(batch)) == pytest.approx(sum(losses) / 9, rel=1e-4)


def test_statistics_of_pre_training_stay_though_the_encoder_learns(
    learned: Callable[..., Method], before: Method
) -> None:
    pretrained, found = state(before, "encoder."), state(learned("limit"), "encoder.")
    assert same(statistics(found), statistics(pretrained))
    assert len(statistics(found)) > 0
    assert not same(found, pretrained)


def test_rows_start_as_trained_or_means(learned: Callable[..., Method], before: Method, benchmark: Benchmark) -> None:
    base = benchmark.sessions[0]
    rows = {
        kind: learned("limit", rows=kind, rows_lr=0.0, encoder_lr=0.0).state()["rows"] for kind in ("trained", "means")
    }
    embeddings = before.embed(base.images)
    for label in base.classes:
        mean = embeddings[base.labels == label].mean(0)
        assert torch.equal(rows["trained"][label], before.state()["rows"][label])
        assert torch.allclose(rows["means"][label], mean, atol=1e-5)


def test_learning_rates_momentum_and_halving_reach_the_stage(
    make_method: MakeMethod, recording_engine: Any, benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")
    method = make_method(
        "limit", benchmark, engine=recording_engine, encoder_lr=0.1, rows_lr=0.2, calibrator_lr=0.3, halve_every=3,
        meta_steps=7, meta_batch_steps=3, momentum=0.8, weight_decay=0.01, nesterov=False,
    )  # fmt: skip
    method.learn_base(benchmark.sessions[0])
    pretraining, stage = recording_engine.stages
    rates = {id(p): group.lr for group in stage.groups for p in group.parameters}
    model = method.model
    assert {rates[id(p)] for p in model.encoder.parameters()} == {0.1}
    assert rates[id(model.rows)] == 0.2
    assert {rates[id(p)] for p in model.calibrator.parameters()} == {0.3}
    assert [stage.schedule(step) for step in range(7)] == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]
    assert (stage.momentum, stage.weight_decay, stage.nesterov) == (0.8, 0.01, False)
    assert (stage.segments, stage.steps) == (3, 3)
    assert [len(stage.prepare(i)["images"]) for i in range(3)] == [3, 3, 1]  # the 7 that were asked for
    assert pretraining.name == "pretrain"


def test_settings_that_cannot_work_are_refused_before_pretraining(
    make_method: MakeMethod, recording_engine: Any, benchmark: Benchmark
) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"fake_way": 4}, "lower fake_way"),
        ({"fake_shot": 8}, "lower fake_shot"),
        ({"fake_queries": 5, "encoder_lr": 0.0, "fake_classes": "mixed"}, "set fake_classes=base"),
        ({"encoder_lr": 0, "rows_lr": 0, "calibrator_lr": 0}, "learning rate is 0"),
        ({"tasks": "plain", "encoder_lr": 0, "rows_lr": 0, "calibrator_lr": 0}, "learning rate is 0"),
        ({"calibrator": "paired,transformer"}, "^calibrator=paired,transformer names several; set check=true, or"),
        ({"calibrator": "paired,transfomer", "check": True}, "unknown calibrator 'transfomer'"),
    ]
    for settings, message in bad:
        method = make_method("limit", benchmark, engine=recording_engine, **settings)
        with pytest.raises(UserError, match=message):
            method.learn_base(benchmark.sessions[0])
    assert not hasattr(recording_engine, "stages")  # nothing was trained


def test_meta_training_lowers_its_loss(make_method: MakeMethod, benchmark: Benchmark, tmp_path: Path) -> None:
    engine = Engine(folder=tmp_path, console=Console(quiet=True))
    method = make_method(
        "limit", benchmark, engine=engine, meta_steps=100, meta_batch_steps=20, encoder_lr=0.0, epochs=3,
        rows="trained", calibrator_lr=0.02, halve_every=0, augmentation="none",
    )  # fmt: skip
    method.learn_base(benchmark.sessions[0])
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["stage"] == "meta-train"]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(("pre_training", "meta_training"), [("basic", "none"), ("none", "basic")])
def test_meta_training_has_an_augmentation_of_its_own(
    make_method: MakeMethod,
    recording_engine: Any,
    benchmark: Benchmark,
    pre_training: str,
    meta_training: str,
) -> None:
    base = benchmark.sessions[0]
    augmentations = {"augmentation": pre_training, "meta_augmentation": meta_training}
    method = make_method("limit", benchmark, engine=recording_engine, encoder_lr=2e-4, **augmentations)
    method.learn_base(base)
    originals = {image.numpy().tobytes() for image in base.images}
    first, last = (stage.prepare(0)["images"].flatten(0, 1) for stage in recording_engine.stages)
    kept = [all(image.numpy().tobytes() in originals for image in images) for images in (first, last)]
    assert kept == [pre_training == "none", meta_training == "none"]
