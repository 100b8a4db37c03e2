from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from fscil.benchmark import Benchmark, Session
from fscil.methods import Method
from fscil.methods.pretrain import pretrain
from fscil.methods.prototypes import class_means

MakeMethod = Callable[..., Method]


def all_of(benchmark: Benchmark, sessions: int) -> Session:
    seen = benchmark.sessions[:sessions]
    images, labels = (torch.cat([getattr(session, name) for session in seen]) for name in ("images", "labels"))
    return Session(tuple(range(benchmark.seen(sessions - 1))), images, labels)


@pytest.mark.parametrize("which", ["last", "all"])
def test_the_last_session_is_trained_afresh_on_everything(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], which: str
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("joint", benchmark, joint_sessions=which)
    method.check_sessions(benchmark.sessions)
    for i, session in enumerate(benchmark.sessions):
        if i == 0:
            method.learn_base(session)
        else:
            method.learn_session(session)
        everything = all_of(benchmark, i + 1)
        assert torch.equal(method.memory.labels, everything.labels)
        assert method.model.base.tolist() == [label < 4 for label in everything.classes]
        if which == "all" or i in (0, 2):
            other = make_method("joint", benchmark)  # the same network, trained on the same images alone
            name = f"joint-{session.classes[0]}" if i else "pretrain"
            expected = pretrain(everything, other.settings, other.context, name=name)
            assert torch.equal(method.model.rows, expected.rows)
            images = benchmark.test_images
            assert torch.equal(method.logits(images), expected.classify(expected.embed(images)))
        else:
            means = class_means(method.embed(everything.images), everything.labels, everything.classes)
            assert torch.allclose(method.model.rows, means)
    assert [note for note in method.notes if "class means" in note] == method.notes
    assert len(method.notes) == (which == "last")


def test_a_step_is_cross_entropy_over_everything_seen_so_far(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], recording_engine: Any
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("joint", benchmark, engine=recording_engine, joint_sessions="all", batch=1000, scale=7.0)
    method.learn_base(benchmark.sessions[0])
    method.learn_session(benchmark.sessions[1])
    stage, model = recording_engine.stages[-1], method.model
    batch = {name: each[0] for name, each in stage.prepare(0).items()}
    assert sorted(batch["labels"].tolist()) == sorted(all_of(benchmark, 2).labels.tolist())
    with torch.no_grad():
        f = normalize(model.encoder(batch["images"]).double(), dim=1)
        logits = 7 * f @ normalize(model.rows.double(), dim=1).T
    losses = [float(torch.logsumexp(own, 0) - own[label]) for own, label in zip(logits, batch["labels"], strict=True)]
    assert float(stage.loss(batch).detach()) == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_the_margin_outlives_the_training(make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]) -> None:
    benchmark = tiny_benchmark()
    method = make_method("joint", benchmark, joint_sessions="all")
    method.learn_base(benchmark.sessions[0])
    method.model.base_margin = 0.5
    method.learn_session(benchmark.sessions[1])
    assert method.model.base_margin == 0.5
