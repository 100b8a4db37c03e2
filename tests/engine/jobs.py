"""What real processes do together in the tests: spawned like torchrun's, met over gloo. One process does it alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from fscil import methods
from fscil.benchmark import Session
from fscil.encoders.shared_norm import share_statistics
from fscil.engine import Engine, launch, processes
from fscil.engine.checkpoint import save_tensors
from fscil.methods import Context
from fscil.methods.method import Method
from fscil.settings import make


def together(function: Callable[..., None], *arguments: Any, world: int = 2, meeting: Path) -> None:
    """Call the function in so many new processes; whatever one of them raises is raised here."""
    torch.multiprocessing.spawn(_enter, (function, arguments, world, meeting), nprocs=world)


def _enter(rank: int, function: Callable[..., None], arguments: tuple[Any, ...], world: int, meeting: Path) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), CUDA_VISIBLE_DEVICES="")
    torch.set_num_threads(1)
    launch.join(f"file://{meeting}")
    try:
        function(*arguments)
    finally:
        launch.leave()


# -- methods ---------------------------------------------------------------------------------------------------------
# 70 images: ten steps of 7, which two processes cannot share evenly, or two epochs of five steps of 14
PRETRAIN = {"epochs": 1, "batch": 7, "lr": 0.002, "augmentation": "autoaug", "cutout": 3}
META = {
    **PRETRAIN, "epochs": 1, "batch": 35, "fake_phases": 2, "fake_way": 1, "fake_shot": 3, "fake_queries": 1,
    "meta_steps": 10, "meta_batch_steps": 5, "encoder_lr": 2e-4, "rows_lr": 2e-4,
}  # fmt: skip
SCENARIOS: dict[str, tuple[str, dict[str, Any]]] = {
    "pre-training": ("decoupled-cosine", {**PRETRAIN, "epochs": 2, "batch": 14}),
    "pre-training, uneven shares": ("decoupled-cosine", PRETRAIN),
    "blends": ("limit", META),
    "blends, batch statistics": ("limit", {**META, "bn": "batch"}),
    "base classes, uneven shares": ("limit", {**META, "fake_classes": "base", "fake_shot": 2, "bn": "batch"}),
    "fixed encoder": ("limit", {**META, "encoder_lr": 0.0}),
    "plain batches": ("limit", {**META, "tasks": "plain", "batch": 7}),
    "finetuning": ("finetune", {**META, "session_epochs": 10, "session_lr": 0.002}),
}


def session(classes: range, images: int, seed: int = 3) -> Session:
    """Noise around a colour of its own for every class, 8 x 8 pixels."""
    generator = torch.Generator().manual_seed(seed)
    colours = torch.randint(60, 196, (len(classes), 1, 3, 1, 1), generator=generator)
    noise = torch.randint(-60, 60, (len(classes), images, 3, 8, 8), generator=generator)
    labels = torch.tensor(classes).repeat_interleave(images)
    return Session(tuple(classes), (colours + noise).flatten(0, 1).to(torch.uint8), labels)


def method_for(name: str, settings: dict[str, Any], folder: Path) -> Method:
    cls = methods.get(name)
    known = {key: value for key, value in settings.items() if key in cls.Settings.__dataclass_fields__}
    engine = Engine(seed=2, folder=folder, checkpoint_seconds=0.0, console=Console(quiet=True))
    return cls(make(cls.Settings, known), Context(engine, (0.5,) * 3, (0.25,) * 3, "colours"))


def learn(scenario: str, folder: Path) -> None:
    """Learn a base session and one of 3 new images in folder; leaves the state of every process there."""
    name, settings = SCENARIOS[scenario]
    folder.mkdir(parents=True, exist_ok=True)
    method = method_for(name, settings, folder)
    method.learn_base(session(range(5), 14))
    method.learn_session(session(range(5, 6), 3, seed=4))
    save_tensors(folder / f"state-{processes.rank()}.safetensors", method.state(), {})


def learn_all(folder: Path) -> None:
    os.environ["FSCIL_CACHE"] = "off"
    for scenario in SCENARIOS:
        learn(scenario, folder / scenario)


def losses(folder: Path) -> dict[tuple[str, int], float]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return {(line["stage"], line["segment"]): line["loss"] for line in lines}


# -- batch normalisation ---------------------------------------------------------------------------------------------
NORMS: dict[str, Callable[[], nn.Module]] = {
    "2d": lambda: nn.BatchNorm2d(3),
    "1d": lambda: nn.BatchNorm1d(3, momentum=0.3, eps=1e-2),
    "cumulative": lambda: nn.BatchNorm2d(3, momentum=None),
    "without weights": lambda: nn.BatchNorm2d(3, affine=False),
    "without memory": lambda: nn.BatchNorm2d(3, track_running_stats=False),
}


def normalise(which: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Two steps over 7 samples and one in evaluation mode: outputs, gradients (means over the processes) and state."""
    generator = torch.Generator().manual_seed(1)
    net = nn.Sequential(NORMS[which]()).to(dtype)
    for p in net.parameters():
        nn.init.normal_(p, generator=generator)
    if processes.world() > 1:
        share_statistics(net)
    shape = (7, 3) if which == "1d" else (7, 3, 4, 2)
    found: dict[str, Tensor] = {}
    for step in range(3):
        net.train(step < 2)
        x = (5 + 2 * torch.randn(shape, generator=generator, dtype=dtype)).requires_grad_()
        target = torch.randn(shape, generator=generator, dtype=dtype)
        y = processes.gathered(net(x[processes.share(7)]), 7)
        ((y - target) ** 3).mean().backward()
        processes.average_gradients([x, *net.parameters()])
        found |= {f"{step} y": y.detach(), f"{step} x": x.grad.clone()}
        found |= {f"{step} {name}": p.grad.clone() for name, p in net.named_parameters()}
        found |= {f"{step} {name}": tensor.clone() for name, tensor in net.state_dict().items()}
    return found
