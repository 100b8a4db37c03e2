"""Training on a GPU: captured steps, streams side by side and a host that never waits, with the CPU's numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from fscil.benchmark import Benchmark
from fscil.encoders import Encoder
from fscil.engine import Engine, Stage
from fscil.engine.prefetch import Prefetcher
from fscil.engine.stepper import Stepper
from fscil.kernels.convolution import Conv2d
from fscil.methods import Method

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
MakeMethod = Callable[..., Method]


@pytest.fixture(autouse=True)
def full_precision() -> None:
    torch.backends.cudnn.allow_tf32 = False


class WatchedEngine(Engine):
    """Trains two segments of a stage; in the second the host may not wait for the device."""

    def train(self, stage: Stage) -> None:
        stepper, ahead = Stepper(stage, self.device, capture=True), Prefetcher(stage, self.device)
        stepper.run_segment(0, ahead.take(0))
        ahead.start(1)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            stepper.run_segment(1, ahead.take(1))
            ahead.start(2)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert stepper.graph is not None
        self.seconds[stage.name] = {"seconds": 0.0, "cached": False}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"fake_classes": "mixed"},
        {"tasks": "plain"},
        {"encoder_lr": 0.0, "fake_classes": "mixed", "rows": "means", "whiten": 1.0, "dropout": 0.0},
        {"augmentation": "autoaug"},
        {"turned": 0.5},
        {"tasks": "pseudo"},
        {"tasks": "pseudo", "encoder_lr": 0.0},
        {"tasks": "replaced", "recursion": 4, "dropout": 0.0, "placeholders": True},
        {"calibrator": "deep-sets"},
        {"calibrator": "bi-lstm"},
        {"calibrator": "graph"},
    ],
)
def test_no_stage_makes_the_host_wait_inside_a_segment(
    settings: dict, make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")
    benchmark = tiny_benchmark(base=7).to("cuda")
    engine = WatchedEngine(device=torch.device("cuda"), console=Console(quiet=True), bfloat16=True)
    make_method("limit", benchmark, engine=engine, epochs=3, meta_steps=6, **settings).learn_base(benchmark.sessions[0])
    assert set(engine.seconds) == {"pretrain", "meta-train"}


def weights(make_method: MakeMethod, benchmark: Benchmark, device: str, capture: bool, lr: float) -> dict[str, Tensor]:
    engine = Engine(device=torch.device(device), console=Console(quiet=True), capture=capture)
    method = make_method("limit", benchmark, engine=engine, epochs=2, lr=lr, dropout=0.0, meta_steps=6)
    method.learn_base(benchmark.to(device).sessions[0])
    assert engine.captured == [capture, capture]
    return {name: tensor.cpu() for name, tensor in method.state().items()}


# large steps amplify the small differences of float32
@pytest.mark.parametrize(("dtype", "lr", "tolerance"), [(torch.float64, 0.02, 1e-7), (torch.float32, 5e-4, 1e-4)])
def test_captured_steps_give_the_numbers_of_plain_ones(
    make_method: MakeMethod,
    tiny_benchmark: Callable[..., Benchmark],
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    lr: float,
    tolerance: float,
) -> None:
    """The same training, step by step and captured."""
    monkeypatch.setenv("FSCIL_CACHE", "off")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)  # plain steps would differ, too
    if dtype == torch.float64:
        monkeypatch.setattr(Encoder, "forward", lambda self, images: self.backbone(images * self.scale + self.shift))
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        benchmark = tiny_benchmark(base=7)
        plain, captured = (weights(make_method, benchmark, "cuda", capture, lr) for capture in (False, True))
    finally:
        torch.set_default_dtype(before)
    for name, tensor in plain.items():
        torch.testing.assert_close(captured[name], tensor, rtol=tolerance, atol=tolerance, msg=name)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("uses", [1, 2, 3])
def test_weight_gradients_beside_the_backward_pass_are_nn_conv2ds(uses: int, captured: bool, autocast: bool) -> None:
    """Many layers, so that a gradient read before it is ready would show; also if a step uses every layer again."""
    torch.manual_seed(1)

    def tower(conv: Callable[..., nn.Module]) -> nn.Sequential:
        layers = [conv(3 if i == 0 else 16, 16, 3, padding=1) for i in range(12)]
        return nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU()))).cuda()

    ours, theirs = tower(Conv2d), tower(partial(nn.Conv2d, bias=False))
    ours.load_state_dict(theirs.state_dict())
    for module in (ours, theirs):
        module.to(memory_format=torch.channels_last)
    x = torch.randn(64, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)

    def step(module: nn.Module) -> list[Tensor]:
        module.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            losses = [module(x.roll(i, 0) / (i + 1)).float().square().mean() for i in range(uses)]
        sum(losses[1:], losses[0]).backward()
        return [2 * p.grad for p in module.parameters()]  # used at once, as the optimiser does

    expected = step(theirs)
    found = step(ours)
    if captured:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step(ours)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = step(ours)
        for _ in range(3):
            for tensor in found:
                tensor.zero_()
            graph.replay()
    for a, b in zip(found, expected, strict=True):
        assert (a - b).norm() <= (0.03 if autocast else 1e-4) * b.norm()
