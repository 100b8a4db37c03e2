"""A step of pre-training: captured against plain on a GPU, and an epoch's cost against its images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest.mock import patch

import torch

from benchmarks.figures import Figure, faster, seconds
from fscil import augment, encoders
from fscil.benchmark import Session
from fscil.engine.schedule import cosine
from fscil.engine.stage import Batch, ParameterGroup, Stage
from fscil.engine.stepper import Stepper
from fscil.kernels import triton as triton_kernels
from fscil.methods.cosine_network import CosineNetwork
from fscil.methods.pretrain import augmented, cosine_loss, items_of

CLASSES = 60


def session(images: int, device: torch.device) -> Session:
    pixels = torch.randint(0, 256, (images, 3, 32, 32), dtype=torch.uint8, device=device)
    return Session(tuple(range(CLASSES)), pixels, torch.arange(images, device=device) % CLASSES)


def pretraining(data: Session, batch: int) -> tuple[Stage, Callable[[], Batch]]:
    """The stage that pre-trains a ResNet20 on the session, and what prepares an epoch of it."""
    device = data.images.device
    encoder = encoders.build("resnet20", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    encoder.autocast = device.type == "cuda"
    network = CosineNetwork(encoder, torch.randn(CLASSES, encoder.dim)).to(device).train()
    transform = augment.build("autoaug", size=32, cutout=16)

    def prepare(_: int = 0) -> Batch:
        return augmented(data, items_of(data, batch, lambda _: 1, 0, len(data.labels) // batch), transform)

    stage = Stage(
        name="pretrain",
        module=network,
        groups=[ParameterGroup(list(network.parameters()), 0.1)],
        schedule=cosine(10**6),
        segments=1,
        steps=len(data.labels) // batch,
        prepare=prepare,
        loss=lambda step: cosine_loss(network, step, 16.0),
    )
    return stage, prepare


def epoch(images: int, batch: int, device: torch.device, capture: bool = True) -> float:
    """Seconds of an epoch, augmentation included."""
    stage, prepare = pretraining(session(images, device), batch)
    stepper = Stepper(stage, device, capture)
    return seconds(lambda: stepper.run_segment(0, prepare()), repeat=2)


def captured_over_plain(batch: int) -> Figure:
    device = torch.device("cuda")
    stage, prepare = pretraining(session(20 * batch, device), batch)
    data = prepare()

    def step(capture: bool) -> float:
        stepper = Stepper(stage, device, capture)
        return seconds(lambda: stepper.run_segment(0, data)) / stage.steps

    return faster(f"captured step over a plain one, batch {batch}", step(True), step(False))


def our_kernels_over_torchs(batch: int) -> Figure:
    device = torch.device("cuda")

    def step() -> float:
        stage, prepare = pretraining(session(20 * batch, device), batch)
        stepper, data = Stepper(stage, device, capture=True), prepare()
        return seconds(lambda: stepper.run_segment(0, data)) / stage.steps

    ours = step()
    with patch.object(triton_kernels, "usable", lambda device: False):
        return faster(f"a step with our kernels over torch's, batch {batch}", ours, step())


def measure() -> Iterator[Figure]:
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    if on_gpu:
        for batch in (128, 256, 512):
            yield captured_over_plain(batch)
        yield our_kernels_over_torchs(512)
    images, batch = (30_000, 512) if on_gpu else (512, 64)
    small, large = epoch(images, batch, device), epoch(2 * images, batch, device)
    measured = {f"{images} images, s": small, f"{2 * images} images, s": large}
    yield Figure("an epoch with twice the images", large / small, "times the time", measured)
