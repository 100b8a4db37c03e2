from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fscil import protocol
from fscil.benchmark import Benchmark
from fscil.errors import UserError
from fscil.methods import Method
from fscil.model import Model

MakeMethod = Callable[..., Method]


def test_classes_are_mean_maps(make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]) -> None:
    benchmark = tiny_benchmark(size=12)  # maps of 3 x 3
    method = make_method("decoupled-deepemd", benchmark)
    method.learn_base(benchmark.sessions[0])
    method.learn_session(benchmark.sessions[1])
    assert method.model.calibrator.cells == 9
    for session in benchmark.sessions[:2]:
        for label in session.classes:
            with torch.no_grad():
                mean = method.model.encoder.spatial(session.images[session.labels == label]).mean(0)  # [64, 3, 3]
            row = method.state()["rows"][label].view(3, 3, 64)
            assert torch.allclose(row, mean.movedim(0, -1), atol=1e-5)


def test_predictions_are_those_of_pot(make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]) -> None:
    ot = pytest.importorskip("ot")
    benchmark = tiny_benchmark()
    method = make_method("decoupled-deepemd", benchmark)
    method.learn_base(benchmark.sessions[0])
    rows = method.state()["rows"].double().view(-1, 4, 64)
    queries = method.embed(benchmark.test_images[:5]).double().view(-1, 4, 64)
    for q, u in enumerate(queries):
        for c, v in enumerate(rows):
            cost = 1 - torch.cosine_similarity(u[:, None], v[None], dim=-1)
            a, b = (u @ v.mean(0)).relu() + 1e-3, (v @ u.mean(0)).relu() + 1e-3
            expected = 16 * (1 - float(ot.emd2((a / a.sum()).numpy(), (b / b.sum()).numpy(), cost.numpy())))
            assert float(method.logits(benchmark.test_images[q : q + 1])[0, c]) == pytest.approx(expected, abs=1e-3)


def test_a_missing_package_is_named_before_training(
    make_method: MakeMethod,
    tiny_benchmark: Callable[..., Benchmark],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    benchmark = tiny_benchmark()
    monkeypatch.setitem(sys.modules, "ot", None)
    method = make_method("decoupled-deepemd", benchmark)
    with pytest.raises(UserError, match=r'pip install "fscil\[emd\]"'):
        method.check_sessions(benchmark.sessions)


def test_every_class_is_scored_once(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old classes' scores serve later sessions, and are what the model would say now."""
    benchmark = tiny_benchmark()
    method = make_method("decoupled-deepemd", benchmark, solver="sinkhorn")
    method.learn_base(benchmark.sessions[0])
    asked, real = [], Model.classify

    def classify(model: Model, embeddings: torch.Tensor, first: int = 0) -> torch.Tensor:
        asked.append(len(model.rows) - first)
        return real(model, embeddings, first)

    monkeypatch.setattr(Model, "classify", classify)
    embeddings = method.embed(benchmark.test_images)
    found = protocol.run_sessions(method, benchmark, lambda *_: None, embeddings)
    assert asked == [4, 2, 1]
    monkeypatch.undo()
    assert torch.equal(found.predictions[-1], method.classify(embeddings).argmax(1))
    table = protocol.Table(torch.zeros_like(method.model.rows[:2]), torch.zeros(len(embeddings), 2))  # of other rows
    assert torch.equal(protocol.extended(table, method.model, embeddings).logits, method.classify(embeddings))


def test_the_model_is_exported_and_loaded(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], tmp_path: Path
) -> None:
    benchmark = tiny_benchmark(size=4)
    method = make_method("decoupled-deepemd", benchmark, solver="sinkhorn")
    method.learn_base(benchmark.sessions[0])
    method.model.calibrator.rounds = method.model.calibrator.iterations = 2  # a long program takes long to export
    images = benchmark.test_images
    batch = torch.export.Dim("batch")
    program = torch.export.export(method.model.eval(), (images[:3],), dynamic_shapes=({0: batch},)).module()
    assert torch.allclose(program(images), method.logits(images), atol=1e-4)
