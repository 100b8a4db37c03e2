"""Finetuning: every layer, on the new images alone."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fscil.benchmark import Benchmark
from fscil.methods import Method

MakeMethod = Callable[..., Method]


def test_the_new_rows_of_finetune_start_at_random(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("finetune", benchmark, session_lr=0.0)
    method.learn_base(benchmark.sessions[0])
    method.learn_session(benchmark.sessions[1])
    first, second = method.state()["rows"][4:]
    assert not torch.equal(first, second)
    assert 0 < float(first.norm()) < 0.1


def test_finetune_trains_every_layer_on_the_new_images_alone(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("finetune", benchmark, session_epochs=3)
    method.learn_base(benchmark.sessions[0])
    before = {name: tensor.clone() for name, tensor in method.state().items()}
    method.learn_session(benchmark.sessions[1])
    after = method.state()
    assert all(not torch.equal(before[n], after[n]) for n in before if n.endswith("weight") and "encoder" in n)
    assert not torch.equal(after["rows"][:4], before["rows"])
