"""Pre-training on photos decoded or copied during training, against the same photos held on the device."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from benchmarks.figures import Figure, seconds
from fscil.benchmark import Benchmark, Session
from fscil.datasets import folder
from fscil.datasets.decode import Resize
from fscil.datasets.photo_store import Store
from fscil.engine import Engine
from fscil.methods import Context
from fscil.methods.pretrain import COSINE, PretrainSettings, fit, new_model
from fscil.photos import Photos

CLASSES, IMAGES, PHOTO = 8, 120, (320, 240)
EPOCHS, BATCH, PARTS, ROUNDS = 3, 64, 2, 2


def write_photos(root: Path) -> None:
    """Smooth noise, which compresses about as photos do."""
    rng = np.random.default_rng(1)
    for label in range(CLASSES):
        (root / f"class{label}").mkdir(parents=True)
        for i in range(IMAGES):
            coarse = Image.fromarray(rng.integers(0, 256, (PHOTO[1] // 8, PHOTO[0] // 8, 3), dtype=np.uint8))
            coarse.resize(PHOTO, Image.Resampling.BILINEAR).save(root / f"class{label}" / f"{i}.jpg", quality=90)


def load(root: Path, size: int, stream: str, device: torch.device) -> Benchmark:
    options = folder.FolderOptions(path=str(root), base_classes=CLASSES - 1, size=size, stream=stream)
    return folder.load(options).to(device)


def trained_per_second(session: Session, encoder: str, device: torch.device, epochs: int = EPOCHS) -> float:
    """Images a second, from the end of the first segment, which warms up and captures, to the end of the last."""
    settings = PretrainSettings(encoder=encoder, augmentation="basic", crop="resized", epochs=epochs, batch=BATCH)
    with tempfile.TemporaryDirectory() as run:
        engine = Engine(
            device=device,
            folder=Path(run),
            bfloat16=device.type == "cuda",
            segment_bytes=len(session.labels) * session.images.shape[1:].numel() // PARTS,
            checkpoint_seconds=1e9,
            console=Console(quiet=True),
        )
        context = Context(engine, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
        fit(new_model(session, settings, context), session, settings, context, "pretrain", COSINE)
        lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    steps = epochs * (len(session.labels) // BATCH)
    return steps * BATCH * (len(lines) - 1) / len(lines) / (lines[-1]["seconds"] - lines[0]["seconds"])


def streamed_over_resident(root: Path, size: int, encoder: str, device: torch.device) -> Figure:
    benchmarks = {stream: load(root, size, stream, device) for stream in ("never", "always")}
    rates = dict.fromkeys(benchmarks, 0.0)
    for _ in range(ROUNDS):  # in turns, so that both see the same load
        for stream, benchmark in benchmarks.items():
            rates[stream] = max(rates[stream], trained_per_second(benchmark.sessions[0], encoder, device))
    streamed = benchmarks["always"].sessions[0]
    decoding = seconds(lambda: streamed.images[:], repeat=2)
    return Figure(
        f"streaming over resident, {encoder} at {size} px, {os.cpu_count()} cores decode",
        rates["always"] / rates["never"],
        "times the speed",
        {
            "streamed, images/s": rates["always"],
            "resident, images/s": rates["never"],
            "decoding alone, images/s": len(streamed.labels) / decoding,
        },
    )


def prepared_over_resident(root: Path, device: torch.device) -> Figure:
    """Photos with a short side of 256, as datasets of photos store them: copied from files, or held on the device."""
    paths = sorted(root.glob("class*/*.jpg"))
    store = Store(root / "store", paths, [str(path.relative_to(root)) for path in paths], Resize(256))
    store.prepare()
    stored, labels = Photos(store.open()), torch.arange(len(paths)) % CLASSES
    sessions = {"copied": Session(tuple(range(CLASSES)), Photos(stored.shards, device=device), labels.to(device))}
    sessions["resident"] = Session(tuple(range(CLASSES)), stored.to(device), labels.to(device))
    rates = dict.fromkeys(sessions, 0.0)
    for _ in range(ROUNDS):
        for name, session in sessions.items():
            rates[name] = max(rates[name], trained_per_second(session, "resnet18", device, epochs=6 * EPOCHS))
    copying = seconds(lambda: sessions["copied"].images[:], repeat=2)
    return Figure(
        f"prepared photos over resident ones, resnet18 at 224 px, {os.cpu_count()} cores copy",
        rates["copied"] / rates["resident"],
        "times the speed",
        {
            "copied, images/s": rates["copied"],
            "resident, images/s": rates["resident"],
            "copying alone, images/s": len(paths) / copying,
        },
    )


def measure() -> Iterator[Figure]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as root:
        write_photos(Path(root))
        yield streamed_over_resident(Path(root), 32, "resnet20", device)
        if device.type == "cuda":
            yield streamed_over_resident(Path(root), 224, "resnet18", device)
            yield prepared_over_resident(Path(root), device)
