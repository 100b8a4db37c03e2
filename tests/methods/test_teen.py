from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fscil.benchmark import Benchmark
from fscil.methods import Method
from fscil.methods.teen import calibrated

MakeMethod = Callable[..., Method]


def one_by_one(new: Tensor, base: Tensor, alpha: float, tau: float, unit_pull: bool = True) -> Tensor:
    """alpha p + (1 - alpha) sum_b w_b p_b in float64, class by class; the sum may be brought to length 1"""
    rows = []
    for p in new.double():
        p = p / p.norm()
        units = [b / b.norm() for b in base.double()]
        scores = [math.exp(tau * float(p @ b)) for b in units]
        pull = sum(score / sum(scores) * b for score, b in zip(scores, units, strict=True))
        rows.append(alpha * p + (1 - alpha) * (pull / pull.norm() if unit_pull else pull))
    return torch.stack(rows)


def test_prototypes_move_towards_similar_base_classes() -> None:
    generator = torch.Generator().manual_seed(2)
    new, base = torch.randn(3, 8, generator=generator), 5 * torch.randn(6, 8, generator=generator)
    for options in [(0.5, 16.0, True), (0.9, 2.0, False), (0.5, 16.0, False), (0.0, 0.0, True)]:
        assert torch.allclose(calibrated(new, base, *options), one_by_one(new, base, *options).float(), atol=1e-5)


def test_sessions_are_calibrated_by_base_classes_alone(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("teen", benchmark, alpha=0.3, tau=4.0)
    method.learn_base(benchmark.sessions[0])
    base = method.state()["rows"].clone()
    for session in benchmark.sessions[1:]:  # classes of the first few-shot session do not pull those of the second
        method.learn_session(session)
        means = [method.embed(session.images[session.labels == label]).mean(0) for label in session.classes]
        expected = one_by_one(torch.stack(means), base, 0.3, 4.0).float()
        assert torch.allclose(method.state()["rows"][list(session.classes)], expected, atol=1e-5)
    assert torch.equal(method.state()["rows"][: len(base)], base)


def test_alpha_1_is_decoupled_cosine(make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]) -> None:
    benchmark = tiny_benchmark()
    found = []
    for name, settings in (("teen", {"alpha": 1.0}), ("decoupled-cosine", {})):
        method = make_method(name, benchmark, **settings)
        method.learn_base(benchmark.sessions[0])
        method.learn_session(benchmark.sessions[1])
        found.append(method.logits(benchmark.test_images))
    assert torch.allclose(*found, atol=1e-4)
