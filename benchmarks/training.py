"""A step of pre-training: captured against plain on a GPU, and an epoch's cost against its images."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import torch

from benchmarks.figures import Figure, faster, seconds
from fscil.benchmark import Session
from fscil.engine import Engine, Stage
from fscil.engine.stepper import Stepper
from fscil.kernels import triton as triton_kernels
from fscil.methods import Context
from fscil.methods.pretrain import COSINE, PretrainSettings, fit, new_model

CLASSES = 60


def session(images: int, device: torch.device) -> Session:
    pixels = torch.randint(0, 256, (images, 3, 32, 32), dtype=torch.uint8, device=device)
    return Session(tuple(range(CLASSES)), pixels, torch.arange(images, device=device) % CLASSES)


class Recorder(Engine):
    """Keeps the stage that it is given, for the benchmark to run."""

    def train(self, stage: Stage) -> None:
        self.stage = stage


def pretraining(data: Session, batch: int) -> Stage:
    """The stage that pre-trains a ResNet20 on the session, an epoch of it."""
    device = data.images.device
    engine = Recorder(device=device, bfloat16=device.type == "cuda")
    context = Context(engine, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    settings = PretrainSettings(epochs=1, batch=batch, cutout=16)
    fit(new_model(data, settings, context), data, settings, context, "pretrain", COSINE)
    return engine.stage


def epoch(images: int, batch: int, device: torch.device, capture: bool = True) -> float:
    """Seconds of an epoch, augmentation included."""
    stage = pretraining(session(images, device), batch)
    stepper = Stepper(stage, device, capture)
    return seconds(lambda: stepper.run_segment(0, stage.prepare(0)), repeat=2)


def captured_over_plain(batch: int) -> Figure:
    device = torch.device("cuda")
    stage = pretraining(session(20 * batch, device), batch)
    data = stage.prepare(0)

    def step(capture: bool) -> float:
        stepper = Stepper(stage, device, capture)
        return seconds(lambda: stepper.run_segment(0, data)) / stage.steps

    return faster(f"captured step over a plain one, batch {batch}", step(True), step(False))


def our_kernels_over_torchs(batch: int) -> Figure:
    device = torch.device("cuda")

    def step() -> float:
        stage = pretraining(session(20 * batch, device), batch)
        stepper, data = Stepper(stage, device, capture=True), stage.prepare(0)
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
