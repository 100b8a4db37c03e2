"""Plan: what fit does with a folder. Its sizes decide; and how long that takes on this machine."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F

from fscil.learner.heads import can_probe
from fscil.learner.judging import DIVISIONS, LEAST_CLASSES, LEAST_PHOTOS
from fscil.model import Model
from fscil.progress import duration

HELD_OUT = 0.2  # share of a class's photos, where it has three or more
FEW_CLASSES, FEW_PHOTOS = 5, 10  # with fewer, or with fewer photos in a usual class, the encoder stays as it is
BATCH, EPOCHS, LEAST_STEPS, MOST_STEPS = 32, 15, 150, 3000  # of fine-tuning
META_STEPS = 500
FAKE_SHOT, FAKE_QUERIES = 5, 2
PATIENCE = 20 * 60.0  # seconds that fit may take for fine-tuning before it must be asked for
SMALL = 64  # pixels a side; blends of small images can be embedded in seconds


@dataclass(frozen=True)
class Speed:
    """Seconds for a photo: to embed a view of it, and to train on it."""

    embed: float
    train: float


@dataclass(frozen=True)
class Plan:
    classes: int
    photos: int
    held_out: int  # photos that choices are made by; in the end all are learned
    encoder: str
    weights: str
    image_size: int  # pixels a side that the encoder sees
    device: str
    whiten: bool  # whether whitened embeddings are tried
    trained_rows: bool  # whether a linear probe's rows are tried beside class means
    limit: bool  # whether LIMIT's calibrator is tried
    finetune: bool  # whether fine-tuning the encoder is tried
    finetune_steps: int
    meta_steps: int
    seconds: float  # all of it, about
    sentences: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def held_out_of(n: int) -> int:
    """Photos held out of a class with n: a fifth, but none of two, which it needs itself."""
    return max(1, round(HELD_OUT * n)) if n >= 3 else 0


def finetune_steps(photos: int) -> int:
    return min(MOST_STEPS, max(LEAST_STEPS, round(EPOCHS * photos / BATCH)))


def plan_for(
    counts: Mapping[str, int], held_out: int, model: Model, speed: Speed, device: str, finetune: bool | None
) -> Plan:
    """counts: photos of every class. finetune: None leaves it to the sizes and to the time that it would take."""
    photos, classes, usual = sum(counts.values()), len(counts), statistics.median(counts.values())
    few = classes < FEW_CLASSES or usual < FEW_PHOTOS
    can_choose = held_out >= LEAST_PHOTOS
    kept = min(n - held_out_of(n) for n in counts.values())
    limit = not few and classes >= LEAST_CLASSES and kept >= FAKE_SHOT + FAKE_QUERIES
    seconds = _seconds(photos, classes, model, speed, limit)
    tuning = _tuning_seconds(photos, model, speed)
    can_tune = can_choose and classes >= 3  # one of them plays a new class
    tune = can_tune and (finetune if finetune is not None else not few and tuning <= PATIENCE)
    said = [
        f"{classes} classes, {photos} photos, {held_out} of them held out to choose by; in the end all are learned."
    ]
    said.append(f"Encoder: {model.spec.encoder}, {model.spec.weights}, on {model.spec.input_size} pixels a side.")
    if tune:
        said.append(f"Fine-tuning the encoder is tried, {finetune_steps(photos)} steps, about {duration(tuning)}.")
    elif finetune and not can_tune:
        said.append(
            f"Fine-tuning cannot be tried: that takes three classes and {LEAST_PHOTOS} held-out photos to choose by."
        )
    elif few:
        why = f"{classes} classes" if classes < FEW_CLASSES else f"{usual:g} photos in a usual class"
        said.append(f"The encoder stays as it is and classes are means: {why} are too few for more.")
    elif finetune is None and can_tune:
        said.append(
            f"The encoder stays as it is: fine-tuning would take about {duration(tuning)} (--finetune, in Python "
            "finetune=True, tries it)."
        )
    else:
        said.append("The encoder stays as it is.")
    if limit:
        said.append(f"LIMIT's calibrator is tried beside class means, {META_STEPS} steps.")
    return Plan(
        classes, photos, held_out, model.spec.encoder, model.spec.weights, model.spec.input_size, device,
        whiten=can_choose, trained_rows=can_choose and not few and can_probe(photos, classes), limit=limit,
        finetune=tune, finetune_steps=finetune_steps(photos) if tune else 0, meta_steps=META_STEPS if limit else 0,
        seconds=seconds + tuning * tune, sentences=tuple(said),
    )  # fmt: skip


def _views(model: Model) -> int:
    return (2 if model.mirror else 1) * (2 if model.shift else 1)


def _seconds(photos: int, classes: int, model: Model, speed: Speed, limit: bool) -> float:
    """Embedding, choosing, and LIMIT, which embeds augmented photos on two thirds of the classes and perhaps on all."""
    embed = photos * _views(model) * speed.embed
    choosing = DIVISIONS * 0.6 * (model.encoder.dim / 512) ** 2 + photos * classes * 5e-5
    blends = 4000 * _views(model) * speed.embed if model.spec.input_size <= SMALL else 0.0
    return embed + choosing + (2 * (embed + blends + META_STEPS * 0.01) if limit else 0.0)


def _tuning_seconds(photos: int, model: Model, speed: Speed) -> float:
    """Once on two thirds of the classes and four fifths of their photos, once on all; each time photos are embedded."""
    steps = finetune_steps(photos) + finetune_steps(photos * 8 // 15)
    return steps * min(BATCH, photos) * speed.train + 2 * photos * _views(model) * speed.embed


def measure_speed(model: Model, clock: Callable[[], float] = time.perf_counter) -> Speed:
    """A second or two of the encoder at work on noise."""
    size, device = model.spec.input_size, model.rows.device
    small = size <= SMALL
    noise = torch.randint(0, 256, (32 if small else 4, 3, size, size), dtype=torch.uint8, device=device)
    network = copy.deepcopy(model.encoder).requires_grad_(True)

    def timed(work: Callable[[], object]) -> float:
        work()  # the first time takes longer
        started, rounds = clock(), 0
        while rounds < 2 or (clock() - started < 0.3 and rounds < 10):
            work()
            rounds += 1
        if device.type == "cuda":
            torch.cuda.synchronize()
        return (clock() - started) / rounds / len(noise)

    def train() -> None:
        network.train()
        F.normalize(network(noise), dim=1).sum().backward()

    return Speed(timed(lambda: model.encoder.embed_here(noise)), timed(train))
