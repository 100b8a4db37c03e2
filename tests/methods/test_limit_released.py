"""LIMIT as its released code has it: every departure from the paper's algorithm is a setting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import calibrator_reference as reference
from fscil.benchmark import Benchmark
from fscil.config import resolve
from fscil.engine import Engine
from fscil.errors import UserError
from fscil.methods import Method

MakeMethod = Callable[..., Method]
RELEASED: dict[str, Any] = {
    "tasks": "replaced", "fake_way": 3, "fake_shot": 1, "recursion": 4, "placeholders": True, "rows": "means",
    "logits": "cosine", "dropout": 0.0, "batch": 9,
}  # fmt: skip


@pytest.fixture
def benchmark(tiny_benchmark: Callable[..., Benchmark]) -> Benchmark:
    return tiny_benchmark(base=5)


@pytest.fixture(autouse=True)
def without_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")


@pytest.mark.parametrize("shot", [1, 2])
@pytest.mark.parametrize("recursion", [1, 4])
@pytest.mark.parametrize("placeholders", [False, True])
def test_loss_is_the_released_codes(
    make_method: MakeMethod, recording_engine: Any, benchmark: Benchmark, shot: int, recursion: int, placeholders: bool
) -> None:
    """One support set replaces rows; the calibrated query of one depth is the query of the next."""
    settings = {**RELEASED, "fake_shot": shot, "recursion": recursion, "placeholders": placeholders}
    method: Any = make_method("limit", benchmark, engine=recording_engine, augmentation="none", **settings)
    method.check_sessions(benchmark.sessions)
    method.learn_base(benchmark.sessions[0])
    stage, calibrator = recording_engine.stages[-1], method.model.calibrator
    if placeholders:
        torch.nn.init.normal_(calibrator.placeholders)
    weights = reference.weights_of(calibrator)
    batch = {name: tensor[1] for name, tensor in stage.prepare(0).items()}
    labels = batch["labels"].tolist()
    embeddings = method.embed(batch["images"]).double().numpy()
    n = 3 * shot
    assert len(labels) == len(embeddings) == n + 9
    rows = method.model.rows.detach().double().numpy().copy()
    for i in range(0, n, shot):
        assert len(set(labels[i : i + shot])) == 1
        rows[labels[i]] = embeddings[i : i + shot].mean(0)
    assert len(set(labels[:n])) == 3
    if placeholders:  # 3 classes come later
        rows = np.concatenate([rows, calibrator.placeholders.detach().double().numpy()[5:]])
        assert len(rows) == 8
    losses = []
    for query, label in zip(embeddings[n:], labels[n:], strict=True):
        for _ in range(recursion):
            logits = reference.logits(weights, rows, query, cosine=True, scale=16.0)[:5]
            losses.append(math.log(sum(math.exp(z) for z in logits)) - logits[label])
            _, query = reference.calibrate(weights, rows, query)
    assert float(stage.loss(batch)) == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_cub200_and_miniimagenet_have_rows_of_length_1_and_a_temperature_that_divides() -> None:
    """<q~, c~ / |c~|> / T: 16 and 0.5; on CIFAR100 a cosine times 16."""
    for benchmark, T in (("cub200", 16.0), ("miniimagenet", 0.5)):
        options = resolve("limit-released", benchmark).method_settings().calibrator_options("transformer", 512)
        assert options == {"cosine": True, "query_length": True, "scale": 1 / T, "dropout": 0.0}
    options = resolve("limit-released", "cifar100").method_settings().calibrator_options("transformer", 64)
    assert options == {"cosine": True, "scale": 16.0, "dropout": 0.0}


def test_queries_are_epochs_over_the_base_session(
    make_method: MakeMethod, recording_engine: Any, benchmark: Benchmark
) -> None:
    """Segments continue an epoch where the last one stopped; 40 images make four batches of 9."""
    method = make_method("limit", benchmark, engine=recording_engine, augmentation="none", meta_steps=8, **RELEASED)
    method.learn_base(benchmark.sessions[0])
    stage = recording_engine.stages[-1]
    assert (stage.segments, stage.steps) == (4, 2)
    for first in (0, 2):
        pictures = torch.cat([stage.prepare(segment)["images"][:, 3:].flatten(0, 1) for segment in (first, first + 1)])
        assert len(pictures.flatten(1).unique(dim=0)) == 36


def test_placeholders_take_part_until_their_classes_arrive(make_method: MakeMethod, benchmark: Benchmark) -> None:
    method: Any = make_method("limit", benchmark, **RELEASED)
    method.check_sessions(benchmark.sessions)
    method.learn_base(benchmark.sessions[0])
    calibrator, image = method.model.calibrator, benchmark.test_images[:1]
    weights, learned = reference.weights_of(calibrator), calibrator.placeholders.detach().double().numpy()
    assert np.abs(learned[5:]).max() > 0
    assert not learned[:5].any()
    for session in benchmark.sessions[1:]:
        method.learn_session(session)
        rows = method.model.rows.detach().double().numpy()
        everything = np.concatenate([rows, learned[len(rows) :]])
        query = method.embed(image)[0].double().numpy()
        expected = reference.logits(weights, everything, query, cosine=True, scale=16.0)[: len(rows)]
        assert np.allclose(method.logits(image)[0].numpy(), expected, atol=1e-3)
    assert len(rows) == len(learned) == 8


def test_rows_become_class_means_again_and_images_are_no_longer_augmented(
    make_method: MakeMethod, recording_engine: Any, benchmark: Benchmark
) -> None:
    base = benchmark.sessions[0]
    settings = {**RELEASED, "meta_steps": 6, "meta_batch_steps": 100, "refresh_every": 3, "augmented_steps": 3}
    method: Any = make_method("limit", benchmark, engine=recording_engine, augmentation="basic", **settings)
    method.learn_base(base)
    stage = recording_engine.stages[-1]
    assert (stage.segments, stage.steps) == (2, 3)  # refreshed and changed between segments
    originals = {image.numpy().tobytes() for image in base.images}
    kept = [
        [image.numpy().tobytes() in originals for image in stage.prepare(i)["images"].flatten(0, 1)] for i in (0, 1)
    ]
    assert not all(kept[0])
    assert all(kept[1])
    with torch.no_grad():
        next(method.model.encoder.parameters()).mul_(1.1)
        method.model.rows.zero_()
    before = method.model.rows.data_ptr()
    stage.after(0)
    embeddings = method.embed(base.images)
    means = torch.stack([embeddings[base.labels == label].mean(0) for label in base.classes])
    assert torch.allclose(method.model.rows, means, atol=1e-5)
    assert method.model.rows.data_ptr() == before  # a captured step reads this address


def test_segments_end_where_rows_are_refreshed(
    make_method: MakeMethod, recording_engine: Any, benchmark: Benchmark
) -> None:
    settings = {**RELEASED, "meta_steps": 20, "meta_batch_steps": 4, "refresh_every": 9}
    method = make_method("limit", benchmark, engine=recording_engine, **settings)
    method.learn_base(benchmark.sessions[0])
    stage, refreshed = recording_engine.stages[-1], []
    method.refresh = lambda session: refreshed.append(segment)  # type: ignore[attr-defined]
    for segment in range(stage.segments):
        stage.after(segment)
    assert stage.steps == 3
    assert refreshed == [2, 5]  # after 9 and 18 steps


@pytest.mark.parametrize("tasks", ["replaced", "plain"])
def test_the_rows_at_the_end_are_class_means(make_method: MakeMethod, benchmark: Benchmark, tasks: str) -> None:
    base, engine = benchmark.sessions[0], Engine(console=Console(quiet=True))
    settings = {**RELEASED, "tasks": tasks, "meta_steps": 4, "refresh_every": 2, "encoder_lr": 0.01}
    method = make_method("limit", benchmark, engine=engine, **settings)
    method.learn_base(base)
    embeddings = method.embed(base.images)
    means = torch.stack([embeddings[base.labels == label].mean(0) for label in base.classes])
    assert torch.allclose(method.state()["rows"], means, atol=1e-5)


def test_rates_fall_at_the_milestones(make_method: MakeMethod, recording_engine: Any, benchmark: Benchmark) -> None:
    preset = resolve("limit-released", "cifar100").settings
    own = {key: preset[key] for key in ("halve_every", "meta_milestones", "meta_decay")}
    method = make_method("limit", benchmark, engine=recording_engine, **own)
    method.learn_base(benchmark.sessions[0])
    schedule = recording_engine.stages[-1].schedule
    expected = [1, 1, 0.3, 0.3, 0.09, 0.09, 0.027, 0.027]
    assert [schedule(234 * epoch) for epoch in range(8)] == pytest.approx(expected)
    assert [schedule(234 * epoch + 233) for epoch in range(8)] == pytest.approx(expected)


def test_settings_that_cannot_work_are_refused_before_pretraining(
    make_method: MakeMethod, recording_engine: Any, benchmark: Benchmark
) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"fake_way": 6}, "replaces the rows of 6 base classes, but there are 5; lower fake_way$"),
        ({"fake_shot": 9}, "needs 9 supports of a class, but one base class has 8 images; lower fake_shot$"),
        ({"dropout": 0.5}, "^recursion needs calibrator=transformer and dropout=0; set them, or recursion=1$"),
        ({"calibrator": "deep-sets", "placeholders": False}, "^recursion needs calibrator=transformer"),
        ({"tasks": "fake", "fake_way": 1}, "^recursion is for base batches; set tasks=replaced or tasks=plain"),
        ({"calibrator": "graph"}, "^placeholders take part in attention; set calibrator=transformer"),
        ({"encoder_lr": 0.0, "rows_lr": 0.0, "calibrator_lr": 0.0}, "every learning rate is 0"),
    ]
    for settings, message in bad:
        method = make_method("limit", benchmark, engine=recording_engine, **{**RELEASED, **settings})
        with pytest.raises(UserError, match=message):
            method.learn_base(benchmark.sessions[0])
    assert not hasattr(recording_engine, "stages")


# -- other set functions -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("encoder_lr", [2e-4, 0.0])
@pytest.mark.parametrize("calibrator", ["deep-sets", "bi-lstm", "graph"])
def test_other_set_functions_learn_from_fake_tasks(
    make_method: MakeMethod, benchmark: Benchmark, calibrator: str, encoder_lr: float
) -> None:
    def learned(meta_steps: int) -> Method:
        method = make_method("limit", benchmark, calibrator=calibrator, encoder_lr=encoder_lr, meta_steps=meta_steps)
        method.learn_base(benchmark.sessions[0])
        method.learn_session(benchmark.sessions[1])
        assert method.logits(benchmark.test_images).isfinite().all()
        return method

    before, after = learned(2).state(), learned(4).state()
    weights = [name for name in before if name.startswith("calibrator.")]
    assert all(not torch.equal(before[name], after[name]) for name in weights)
