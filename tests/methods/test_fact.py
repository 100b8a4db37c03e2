"""FACT: its loss one image after the other, and what it reserves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fscil import distributed, encoders
from fscil.benchmark import Benchmark
from fscil.errors import UserError
from fscil.methods import Method
from fscil.methods.fact import forecasting_loss, reserving_loss

MakeMethod = Callable[..., Method]
BASE, VIRTUAL = 3, 4


def cross_entropy(scores: list[float], target: int, left_out: int | None = None) -> float:
    among = [score for i, score in enumerate(scores) if i != left_out]
    return math.log(sum(map(math.exp, among))) - scores[target]


def best(scores: list[float], among: range) -> int:
    return max(among, key=lambda i: scores[i])


def drawn(n: int) -> Tensor:
    return 3 * torch.randn(n, BASE + VIRTUAL, generator=torch.Generator().manual_seed(5))


def test_an_image_is_of_a_virtual_class_after_its_own() -> None:
    f, y = drawn(6), [0, 1, 2, 2, 1, 0]
    expected = 0.0
    for scores, label in zip(f.double().tolist(), y, strict=True):
        expected += cross_entropy(scores, best(scores, range(BASE, BASE + VIRTUAL)), left_out=label) / 6
    assert float(reserving_loss(f, torch.tensor(y), BASE)) == pytest.approx(expected, rel=1e-5)


def test_a_mixture_is_of_a_virtual_class_and_then_of_a_base_class() -> None:
    f, valid = drawn(6), [True, False, True, True, False, True]
    expected = 0.0
    for scores, counts in zip(f.double().tolist(), valid, strict=True):
        virtual, known = best(scores, range(BASE, BASE + VIRTUAL)), best(scores, range(BASE))
        both = cross_entropy(scores, virtual) + cross_entropy(scores, known, left_out=virtual)
        expected += counts * both / 4
    assert float(forecasting_loss(f, torch.tensor(valid), BASE)) == pytest.approx(expected, rel=1e-5)
    assert float(forecasting_loss(f, torch.zeros(6, dtype=torch.bool), BASE)) == 0  # all images of one class


def test_the_loss_of_a_step(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], recording_engine: Any
) -> None:
    """CE + gamma (reserving loss + forecasting loss of mixtures, halfway through the network, of neighbours)"""
    benchmark = tiny_benchmark()
    method = make_method("fact", benchmark, engine=recording_engine, virtual=3, gamma=0.4, alpha=0.8, scale=9.0)
    method.learn_base(benchmark.sessions[0])
    stage, model = recording_engine.stages[-1], method.model
    batch = {name: each[0] for name, each in stage.prepare(0).items()}
    y = batch["labels"].tolist()
    torch.manual_seed(3)
    found = float(stage.loss(batch).detach())
    torch.manual_seed(3)
    lam = float(torch.distributions.Beta(0.8, 0.8).sample())
    with torch.no_grad():
        h = model.encoder.first(batch["images"])
        z = model.encoder.second(torch.stack([lam * h[i] + (1 - lam) * h[i - 1] for i in range(len(y))]))
        rows = nn.functional.normalize(torch.cat([model.rows, model.calibrator.prototypes]).double(), dim=1)
        units = (nn.functional.normalize(each.double(), dim=1) for each in (model.encoder.second(h), z))
        f, f_z = ((9 * unit @ rows.T).tolist() for unit in units)
    base, virtual, real, mixed = range(4), range(4, 7), 0.0, []
    for i, label in enumerate(y):
        real += cross_entropy(f[i], label) / len(y)
        real += 0.4 * cross_entropy(f[i], best(f[i], virtual), left_out=label) / len(y)
        if label != y[i - 1]:
            first, second = best(f_z[i], virtual), best(f_z[i], base)
            mixed.append(cross_entropy(f_z[i], first) + cross_entropy(f_z[i], second, left_out=first))
    assert 0 < len(mixed) < len(y)
    assert found == pytest.approx(real + 0.4 * sum(mixed) / len(mixed), rel=1e-3)


def test_as_many_prototypes_are_reserved_as_classes_are_to_come(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark(ways=(3, 2))
    for settings, expected in ({}, 5), ({"virtual": 2}, 2):
        method = make_method("fact", benchmark, **settings)
        method.check_sessions(benchmark.sessions)
        method.learn_base(benchmark.sessions[0])
        assert method.state()["calibrator.prototypes"].shape == (expected, 64)
        started = torch.eye(expected)
        learned = method.state()["calibrator.prototypes"]
        assert not torch.allclose(learned @ learned.T, started, atol=1e-4)  # they were trained
        before = learned.clone()
        method.learn_session(benchmark.sessions[1])
        assert torch.equal(method.state()["calibrator.prototypes"], before)  # and stay


def test_classes_are_class_means(make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]) -> None:
    benchmark = tiny_benchmark()
    method = make_method("fact", benchmark)
    method.learn_base(benchmark.sessions[0])
    method.learn_session(benchmark.sessions[1])
    for session in benchmark.sessions[:2]:
        for label in session.classes:
            mean = method.embed(session.images[session.labels == label]).mean(0)
            assert torch.allclose(method.state()["rows"][label], mean, atol=1e-5)


def test_gamma_weighs_what_the_virtual_prototypes_learn(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark()
    learned = []
    for gamma in (0.0, 1.0):
        method = make_method("fact", benchmark, gamma=gamma)
        method.learn_base(benchmark.sessions[0])
        learned.append(method.state()["calibrator.prototypes"])
    assert not torch.allclose(*learned, atol=1e-5)


class Whole(nn.Module):
    """An encoder that cannot be cut in two."""

    dim = 4

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).mean((2, 3))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fact", "^encoder whole cannot be cut in two, which FACT needs; choose another one$"),
        ("decoupled-deepemd", "^Whole has no spatial features; choose another encoder$"),
    ],
)
def test_encoders_without_inner_layers_are_refused_before_training(
    make_method: MakeMethod,
    tiny_benchmark: Callable[..., Benchmark],
    monkeypatch: pytest.MonkeyPatch,
    recording_engine: object,
    name: str,
    message: str,
) -> None:
    monkeypatch.setitem(encoders.BACKBONES, "whole", Whole)
    benchmark = tiny_benchmark()
    method = make_method(name, benchmark, encoder="whole", engine=recording_engine)
    with pytest.raises(UserError, match=message):
        method.learn_base(benchmark.sessions[0])
    assert not hasattr(recording_engine, "stages")


def test_several_processes_are_refused_before_training(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = tiny_benchmark()
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    with pytest.raises(UserError, match="trains in one process; start it without torchrun"):
        make_method("fact", benchmark).check_sessions(benchmark.sessions)
