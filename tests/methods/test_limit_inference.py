"""LIMIT in the few-shot sessions: prototypes in, calibrated logits out, nothing trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import calibrator_reference as reference
from fscil.benchmark import Benchmark, Session
from fscil.calibrators import Paired, kept_terms
from fscil.methods import Method

MakeMethod = Callable[..., Method]


@pytest.fixture
def benchmark(tiny_benchmark: Callable[..., Benchmark]) -> Benchmark:
    return tiny_benchmark(base=5, ways=(2, 1, 3), shots=(1, 5, 2))


@pytest.fixture
def method(make_method: MakeMethod, benchmark: Benchmark) -> Method:
    method = make_method("limit", benchmark)
    method.learn_base(benchmark.sessions[0])
    return method


def test_any_way_and_any_shot(method: Method, benchmark: Benchmark) -> None:
    images = benchmark.test_images
    assert method.logits(images).shape == (len(images), 5)
    for i, session in enumerate(benchmark.sessions[1:], start=1):
        method.learn_session(session)
        logits = method.logits(images)
        assert logits.shape == (len(images), benchmark.seen(i))
        assert logits.isfinite().all()


def test_a_new_row_is_the_mean_embedding_of_its_class(method: Method, benchmark: Benchmark) -> None:
    session = benchmark.sessions[1]
    extra = Session(
        session.classes,
        torch.cat([session.images, session.images[:1]]),
        torch.cat([session.labels, session.labels[:1]]),
    )
    method.learn_session(extra)  # one class now has two images, the other one
    rows = method.model.rows
    for place, label in enumerate(session.classes):
        own = [
            method.embed(image[None])[0] for image, of in zip(extra.images, extra.labels, strict=True) if of == label
        ]
        assert torch.allclose(rows[5 + place], torch.stack(own).mean(0), atol=1e-5)


def test_classes_keep_their_order_of_arrival(method: Method, benchmark: Benchmark) -> None:
    """Images of a session in any order give the same rows, one per class in the order of session.classes."""
    session = benchmark.sessions[3]
    shuffled = torch.randperm(len(session.labels), generator=torch.Generator().manual_seed(1))
    for number in (1, 2):
        method.learn_session(benchmark.sessions[number])
    before = method.state()["rows"].clone()
    method.learn_session(Session(session.classes, session.images[shuffled], session.labels[shuffled]))
    rows = method.state()["rows"]
    assert torch.equal(rows[: len(before)], before)
    for place, label in enumerate(session.classes):
        expected = method.embed(session.images[session.labels == label]).mean(0)
        assert torch.allclose(rows[len(before) + place], expected, atol=1e-5)


def test_sessions_train_nothing(method: Method, benchmark: Benchmark) -> None:
    before = {name: tensor.clone() for name, tensor in method.state().items()}
    for session in benchmark.sessions[1:]:
        method.learn_session(session)
    after = method.state()
    grown = {"rows", "base"}
    assert all(torch.equal(before[name], after[name]) for name in before if name not in grown)
    assert all(torch.equal(after[name][:5], before[name]) for name in grown)
    assert after["base"].tolist() == [True] * 5 + [False] * 6
    assert not method.logits(benchmark.test_images).requires_grad
    assert list(method.engine.seconds) == ["pretrain", "meta-train"]


@pytest.mark.parametrize("logits", ["inner", "cosine"])
def test_logits_are_calibrated_one_query_at_a_time(make_method: MakeMethod, benchmark: Benchmark, logits: str) -> None:
    method = make_method("limit", benchmark, logits=logits)
    method.learn_base(benchmark.sessions[0])
    method.learn_session(benchmark.sessions[1])
    model: Any = method.model
    found = method.logits(benchmark.test_images)
    rows, weights = model.rows.detach().double().numpy(), reference.weights_of(model.calibrator)
    scale = method.settings.scale if logits == "cosine" else method.settings.scale / model.encoder.dim
    for image, row in zip(benchmark.test_images[::4], found[::4], strict=True):
        query = method.embed(image[None])[0].double().numpy()
        expected = reference.logits(weights, rows, query, cosine=logits == "cosine", scale=scale)
        assert np.allclose(row.double().numpy(), expected, atol=1e-3)


def test_pairs_are_embeddings_and_what_the_encoder_gives(
    make_method: MakeMethod, benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of base classes: class mean and trained row; of new ones: prototype and zeros."""
    monkeypatch.setenv("FSCIL_CACHE", str(tmp_path))
    same: dict[str, Any] = {"power": 0.5, "mirror": True, "shift": 1, "whiten": 1.0}
    method = make_method("limit", benchmark, calibrator="paired", rows="means", **same)
    means = make_method("decoupled-cosine", benchmark, rows="means", **same)
    trained = make_method("decoupled-cosine", benchmark, rows="trained")
    for each in (method, means, trained):
        each.learn_base(benchmark.sessions[0])
    assert list(method.engine.seconds) == ["pretrain"]  # there is nothing to meta-train
    for session in benchmark.sessions[1:]:
        method.learn_session(session)
        means.learn_session(session)
    rows = method.model.rows
    assert rows.shape == (11, 2 * 64)
    assert torch.equal(rows[:, :64], means.model.rows)
    assert torch.equal(rows[:5, 64:], trained.model.rows)
    assert not rows[5:, 64:].any()

    images, encode = benchmark.test_images, method.model.encoder.embed
    views = [F.pad(each, (by, -by, by, -by)) for each in (images, images.flip(-1)) for by in (1, -1)]
    features = torch.stack([F.normalize(encode(view), dim=1) for view in views]).mean(0)
    found = method.embed(images)
    assert torch.equal(found[:, :64], means.embed(images))
    torch.testing.assert_close(found[:, 64:], features, rtol=1e-4, atol=1e-4)
    expected = Paired(64, scale=16.0, trust=1.0, common=0.0)(rows, found)
    torch.testing.assert_close(method.logits(images), expected.detach())


def test_a_thousand_queries_are_answered_like_one(method: Method, benchmark: Benchmark) -> None:
    """Queries are processed in parts; the boundaries must not show."""
    embeddings = method.embed(benchmark.test_images).repeat(20, 1)
    assert len(embeddings) > 512
    together = method.classify(embeddings)
    apart = torch.cat([method.classify(part) for part in embeddings.split(33)])
    assert torch.allclose(together, apart, atol=1e-4)


def test_what_the_classes_need_is_made_once(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One image after another, and a class after another: no prediction rebuilds the terms of all classes."""
    benchmark = tiny_benchmark(base=9, ways=(1, 1, 1), shots=(2, 2, 2))
    method = make_method("limit", benchmark)
    method.learn_base(benchmark.sessions[0])
    method.logits(benchmark.test_images[:1])
    monkeypatch.setattr(kept_terms, "make", lambda *_: pytest.fail("the terms of all classes are made again"))
    model: Any = method.model
    for session in benchmark.sessions[1:]:
        method.learn_session(session)
        together = method.logits(benchmark.test_images)
        apart = torch.cat([method.logits(image[None]) for image in benchmark.test_images])
        expected = model.calibrator.attend(model.rows, method.embed(benchmark.test_images))
        assert torch.allclose(together, expected, atol=1e-3)
        assert torch.allclose(apart, expected, atol=1e-3)
