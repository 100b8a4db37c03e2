"""What real processes do together in the tests, spawned as by torchrun and connected over gloo; or one, alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from rich.console import Console
from timm.layers import BatchNormAct2d
from torch import Tensor, nn

from fscil import distributed, encoders, methods, runs
from fscil.benchmark import Session
from fscil.config import resolve
from fscil.encoders import Encoder
from fscil.encoders.shared_norm import share_statistics
from fscil.engine import Engine, Stage
from fscil.engine.checkpoint import save_tensors
from fscil.engine.stage import Batch
from fscil.errors import LostContact, UserError
from fscil.methods import Context
from fscil.settings import make


def together(
    function: Callable[..., None], *arguments: Any, meeting: Path, world: int = 2, device: str = "cpu"
) -> None:
    """Call the function in `world` new processes; whatever one of them raises is raised here."""
    torch.multiprocessing.spawn(_enter, (function, arguments, meeting, world, device), nprocs=world)


def _enter(
    rank: int, function: Callable[..., None], arguments: tuple[Any, ...], meeting: Path, world: int, device: str
) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    distributed.initialise(f"file://{meeting}", least=1)
    runs.choose_device(device)
    try:
        function(*arguments)
    finally:
        distributed.shut_down()


# -- training --------------------------------------------------------------------------------------------------------
class Small(nn.Module):
    """Shallow and smooth: a deep fresh network amplifies rounding differences, and so does every kink of a ReLU."""

    dim = 8

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8),
            nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Softplus(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


encoders.BACKBONES["small"] = Small

# 70 images: ten steps of 7, which two processes cannot share evenly, or two epochs of five steps of 14
PRETRAIN: dict[str, Any] = {"encoder": "small", "epochs": 1, "batch": 7, "augmentation": "basic"}
META: dict[str, Any] = {
    **PRETRAIN,
    "batch": 35,
    "fake_phases": 2,
    "fake_way": 1,
    "fake_shot": 3,
    "fake_queries": 1,
    "meta_steps": 10,
    "meta_batch_steps": 5,
}
PLUS: dict[str, Any] = {
    **META, "fake_classes": "mixed", "rows": "means", "logits": "cosine", "encoder_lr": 0.0, "dropout": 0.0,
    "whiten": 1.0, "shift": 1, "mirror": True,
}  # fmt: skip
SCENARIOS: dict[str, tuple[str, dict[str, Any]]] = {
    "pre-training": ("decoupled-cosine", {**PRETRAIN, "epochs": 2, "batch": 14}),
    "ResNet20": ("decoupled-cosine", {**PRETRAIN, "encoder": "resnet20"}),
    "pre-training, uneven shares": ("decoupled-cosine", PRETRAIN),
    "a faster head": ("decoupled-cosine", {**PRETRAIN, "head_lr": 0.05, "label_smoothing": 0.1, "rows": "trained"}),
    "blends": ("limit", {**META, "fake_classes": "mixed"}),
    "base classes, uneven shares": ("limit", {**META, "fake_shot": 2}),
    "fixed encoder": ("limit", {**META, "fake_classes": "mixed", "encoder_lr": 0.0}),
    "fixed encoder, whitened": ("limit", PLUS),
    "paired": ("limit", {**PLUS, "calibrator": "paired"}),
    "calibration that is checked": ("limit", {**PLUS, "calibrator": "paired,transformer", "check": True}),
    "plain batches": ("limit", {**META, "tasks": "plain", "batch": 7}),
    "finetuning": ("finetune", {**META, "session_epochs": 10}),
    "pseudo-incremental tasks": ("cec", META),
    "replaced rows": (
        "limit",
        {**META, "tasks": "replaced", "batch": 7, "dropout": 0.0, "recursion": 3, "refresh_every": 5},
    ),
    "distillation": ("eeil", {**META, "session_epochs": 4, "balanced_epochs": 3, "trained": "all"}),
    "turned images": ("decoupled-cosine", {**PRETRAIN, "turned": 0.4, "rows": "trained"}),
    "neural gas": ("topic", {**META, "session_epochs": 5, "memory": "9+1/class", "gas_steps": 100}),
    "rotated classes": ("limit", {**META, "fake_classes": "rotated"}),
    "rotated classes, fixed encoder": ("limit", {**META, "fake_classes": "rotated", "encoder_lr": 0.0}),
}
IN_FLOAT32 = list(SCENARIOS)[:6]
# in float32 only small steps stay comparable
SMALL = {"lr": 5e-4, "encoder_lr": 2e-4, "rows_lr": 2e-4, "calibrator_lr": 2e-4, "session_lr": 5e-4}
LARGE = {"lr": 0.02, "encoder_lr": 0.01, "rows_lr": 0.01, "calibrator_lr": 0.01, "session_lr": 0.01}


class PowerCutError(Exception):
    pass


class FailingEngine(Engine):
    """The power fails when the second segment of meta-training is prepared."""

    def train(self, stage: Stage) -> None:
        def prepare(segment: int) -> Batch:
            if (stage.name, segment) == ("meta-train", 1):
                raise PowerCutError
            return dict(stage.prepare(segment))

        super().train(replace(stage, prepare=prepare))


def session(classes: range, images: int, seed: int = 3, device: str = "cpu") -> Session:
    """Noise around a different colour for each class, 8 x 8 pixels."""
    generator = torch.Generator().manual_seed(seed)
    colours = torch.randint(60, 196, (len(classes), 1, 3, 1, 1), generator=generator)
    noise = torch.randint(-60, 60, (len(classes), images, 3, 8, 8), generator=generator)
    labels = torch.tensor(classes).repeat_interleave(images)
    pictures = (colours + noise).flatten(0, 1).to(torch.uint8)
    return Session(tuple(classes), pictures.to(device), labels.to(device))


def learn(
    scenario: str, folder: Path, kind: type[Engine] = Engine, rates: dict[str, float] = SMALL, device: str = "cpu"
) -> None:
    """Learn a base session and one of 3 new images; leaves the state of every process in the folder."""
    name, settings = SCENARIOS[scenario]
    cls = methods.get(name)
    folder.mkdir(parents=True, exist_ok=True)
    known = {key: value for key, value in {**rates, **settings}.items() if key in cls.Settings.__dataclass_fields__}
    engine = kind(torch.device(device), 2, folder, checkpoint_seconds=0.0, console=Console(quiet=True))
    method = cls(make(cls.Settings, known), Context(engine, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)))
    base, later = session(range(5), 14, device=device), session(range(5, 6), 3, seed=4, device=device)
    method.check_sessions([base, later])
    method.learn_base(base)
    method.learn_session(later)
    about = {"captured": engine.captured, "notes": method.notes}
    save_tensors(folder / f"state-{distributed.rank()}.safetensors", method.state(), about)


def in_double(self: Encoder, images: Tensor) -> Tensor:
    return self.backbone(images.double() * self.scale + self.shift)


def learn_all(folder: Path) -> None:
    """With small steps in float32, and with large ones in float64."""
    for scenario in IN_FLOAT32:
        learn(scenario, folder / "float32" / scenario)
    in_single = Encoder.forward
    torch.set_default_dtype(torch.float64)
    Encoder.forward = in_double  # type: ignore[method-assign]
    for scenario in SCENARIOS:
        learn(scenario, folder / "float64" / scenario, rates=LARGE)
    Encoder.forward = in_single  # type: ignore[method-assign]
    torch.set_default_dtype(torch.float32)


def learn_on_gpus(folder: Path) -> None:
    os.environ["FSCIL_CACHE"] = "off"
    torch.backends.cudnn.allow_tf32 = False
    for scenario in IN_FLOAT32:
        learn(scenario, folder / scenario, device="cuda")


def wait_for_a_hanging_gpu(folder: Path) -> None:
    """A tensor that comes in time, then one that does not, since the GPU is busy for many seconds."""
    distributed.wait_for(torch.zeros(1, device="cuda"))
    os.environ["FSCIL_TIMEOUT"] = "1"
    torch.cuda._sleep(2 * 10**10)
    try:
        distributed.wait_for(torch.zeros(1, device="cuda"))
    except LostContact as error:
        (folder / "said").write_text(str(error))


def learn_until_the_power_fails(folder: Path) -> None:
    try:
        learn("blends", folder, FailingEngine)
    except PowerCutError:
        return
    raise AssertionError("it did not fail")


# -- batch normalisation ---------------------------------------------------------------------------------------------
NORMS: dict[str, Callable[[], nn.Module]] = {
    "2d": lambda: nn.BatchNorm2d(3),
    "1d": lambda: nn.BatchNorm1d(3, momentum=0.3, eps=1e-2),
    "cumulative": lambda: nn.BatchNorm2d(3, momentum=None),
    "without weights": lambda: nn.BatchNorm2d(3, affine=False),
    "timm's, with an activation": lambda: BatchNormAct2d(3, act_layer=nn.SiLU),
}


def normalise(which: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Two steps over 7 samples and one in evaluation mode: outputs, gradients and state."""
    generator = torch.Generator().manual_seed(1)
    net = nn.Sequential(NORMS[which]()).to(dtype)
    for p in net.parameters():
        nn.init.normal_(p, generator=generator)
    if distributed.world_size() > 1:
        share_statistics(net)
    shape = (7, 3) if which == "1d" else (7, 3, 4, 2)
    found: dict[str, Tensor] = {}
    for step in range(3):
        net.train(step < 2)
        x = (5 + 2 * torch.randn(shape, generator=generator, dtype=dtype)).requires_grad_()
        target = torch.randn(shape, generator=generator, dtype=dtype)
        y = distributed.all_gather_shards(net(x[distributed.shard(7)]), 7)
        ((y - target) ** 3).mean().backward()
        distributed.average_gradients([x, *net.parameters()])
        found |= {f"{step} y": y.detach(), f"{step} dx": x.grad.clone()}
        found |= {f"{step} d{name}": p.grad.clone() for name, p in net.named_parameters()}
        found |= {f"{step} {name}": tensor.clone() for name, tensor in net.state_dict().items()}
    return found


# -- runs ------------------------------------------------------------------------------------------------------------
def run(folder: Path) -> None:
    """A run of the embedded digits, with a different folder and cache in each process."""
    own = folder / str(distributed.rank())
    os.environ["FSCIL_CACHE"] = str(own / "cache")
    config = resolve("decoupled-cosine", "digits", ["epochs=1", "encoder=small"], seed=1)
    for name in ("first", "again"):
        where = runs.RunEnvironment(torch.device("cpu"), own / name, checkpoint_seconds=0.0)
        result = runs.start(config, where, Console(quiet=True))
        (folder / f"{name}-{distributed.rank()}.json").write_text(json.dumps(vars(result)))


def write_photos(folder: Path) -> None:
    """Six classes of six noisy pictures."""
    pixels = session(range(6), 6).images.permute(0, 2, 3, 1).numpy()
    for i, picture in enumerate(pixels):
        path = folder / f"class {i // 6}" / f"{i % 6}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)


def learn_photos(folder: Path, stream: str) -> None:
    """A run in a folder that has photos; with several processes, each has its own folder and copy."""
    here = Path.cwd()
    os.chdir(folder)
    settings = ["path=photos", "way=1", "shot=2", "size=8", f"stream={stream}", "encoder=small", "epochs=2", "lr=5e-4"]
    config = resolve("decoupled-cosine", "folder", settings, seed=1)
    runs.start(config, runs.RunEnvironment(torch.device("cpu"), Path("run")), Console(quiet=True))
    os.chdir(here)


def refusal(function: Callable[[], object]) -> str:
    try:
        function()
    except UserError as error:
        return str(error)
    return "not refused"


def refuse(folder: Path) -> None:
    """What the processes print when they cannot continue together; rank 0 holds a run, rank 1 other data."""
    own, rank = folder / str(distributed.rank()), distributed.rank()
    config = resolve("decoupled-cosine", "digits", [f"epochs={rank + 1}"], seed=1)
    quiet = Console(quiet=True)
    where = runs.RunEnvironment(torch.device("cpu"), own / "first")
    said = {
        "taken": refusal(lambda: runs.start(config, where, quiet)),
        "differing": refusal(lambda: runs.start(config, replace(where, folder=own / "differing"), quiet)),
        "small batch": refusal(lambda: distributed.shard(1)),
    }
    (folder / f"said-{rank}.json").write_text(json.dumps(said))


# -- all of it at once, since starting the processes takes longer than their work --------------------------------------
def everything(folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ["FSCIL_CACHE"] = "off"
    learn_all(folder)
    learn("blends", folder / "stopped by one")
    learn_until_the_power_fails(folder / "stopped by two")
    norms = {which: normalise(which, torch.float64) for which in NORMS}
    tensors = {f"{which} {name}": tensor for which, found in norms.items() for name, tensor in found.items()}
    save_tensors(folder / f"norms-{distributed.rank()}.safetensors", tensors, {})
    learn_photos(folder / f"photos of {distributed.rank()}", "always")
    run(folder / "runs")
    refuse(folder / "runs")
