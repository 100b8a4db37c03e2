"""Every method on a GPU: from the same state it answers and learns as on the CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from rich.console import Console
from torch import Tensor

from fscil import methods
from fscil.benchmark import Benchmark
from fscil.engine import Engine
from fscil.methods import Method

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
MakeMethod = Callable[..., Method]
DEVICES = ("cpu", "cuda")
GENTLE = {"lr": 5e-4, "session_lr": 1e-3}  # large steps amplify the rounding of float32


@pytest.fixture(autouse=True)
def full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setenv("FSCIL_CACHE", "off")


def on(device: str, name: str, benchmark: Benchmark, make_method: MakeMethod) -> Method:
    known = {field.name for field in dataclasses.fields(methods.get(name).Settings)}
    engine = Engine(device=torch.device(device), console=Console(quiet=True))
    return make_method(name, benchmark, engine=engine, **{key: GENTLE[key] for key in GENTLE if key in known})


def assert_near(found: Tensor, expected: Tensor, share: float) -> None:
    assert float((found.cpu() - expected).norm()) <= share * float(expected.norm())


@pytest.mark.parametrize("name", methods.names())
def test_sessions_are_answered_and_learned_as_on_the_cpu(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    """The base session is learned once: tasks are drawn by the device's own generator, which differs."""
    if name == "decoupled-deepemd":
        pytest.importorskip("ot")  # exact distances on the CPU
    benchmark = tiny_benchmark(size=16)
    taught = on("cpu", name, benchmark, make_method)
    taught.learn_base(benchmark.sessions[0])
    logits: dict[str, list[Tensor]] = {}
    for device in DEVICES:
        here, method = benchmark.to(device), on(device, name, benchmark, make_method)
        method.load_state(taught.model.spec, taught.state())
        logits[device] = [method.logits(here.test_images)]
        for session in here.sessions[1:]:
            method.learn_session(session)
            logits[device].append(method.logits(here.test_images))
    for found, expected in zip(logits["cuda"], logits["cpu"], strict=True):
        assert_near(found, expected, 0.01)
    assert [each.shape[1] for each in logits["cuda"]] == [4, 6, 7]


def test_pretraining_is_the_cpus(make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]) -> None:
    benchmark = tiny_benchmark()
    logits = []
    for device in DEVICES:
        method = on(device, "decoupled-cosine", benchmark, make_method)
        method.learn_base(benchmark.to(device).sessions[0])
        logits.append(method.logits(benchmark.to(device).test_images))
    assert_near(logits[1], logits[0].cpu(), 0.001)
