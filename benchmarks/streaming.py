"""Streaming over resident: images a second in pre-training, on a generated folder of JPEG photos.

    python benchmarks/streaming.py [cpu|cuda]

Both halves of the ratio are measured in this one run, in turns, on the same photos with the same steps. Where it is
near 1, decoding hides behind training; where the device is much faster than the processor's cores can decode, it is
the share of the device's speed that they can feed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from fscil.benchmark import Session
from fscil.datasets import folder
from fscil.engine import Engine
from fscil.images import StreamedImages
from fscil.methods import Context
from fscil.methods.pretrain import PretrainSettings, pretrain
from fscil.runs import choose_device, describe

CLASSES, IMAGES, PHOTO, SIZE = 8, 120, (320, 240), 32
EPOCHS, BATCH, PARTS, ROUNDS = 3, 64, 2, 2


def write_photos(root: Path) -> None:
    """Smooth noise, which compresses about as photos do."""
    rng = np.random.default_rng(1)
    for label in range(CLASSES):
        (root / f"class{label}").mkdir(parents=True)
        for i in range(IMAGES):
            coarse = Image.fromarray(rng.integers(0, 256, (PHOTO[1] // 8, PHOTO[0] // 8, 3), dtype=np.uint8))
            coarse.resize(PHOTO, Image.Resampling.BILINEAR).save(root / f"class{label}" / f"{i}.jpg", quality=90)


def trained_per_second(session: Session, device: torch.device) -> float:
    """Images a second, from the end of the first segment (its warm-up and capture included) to that of the last."""
    image_bytes = session.images.shape[1:].numel()
    with tempfile.TemporaryDirectory() as run:
        engine = Engine(
            device=device,
            folder=Path(run),
            bfloat16=device.type == "cuda",
            segment_bytes=len(session.labels) * image_bytes // PARTS,
            checkpoint_seconds=1e9,
            console=Console(quiet=True),
        )
        settings = PretrainSettings(augmentation="basic", epochs=EPOCHS, batch=BATCH)
        pretrain(session, settings, Context(engine, folder.MEAN, folder.STD, "benchmark"))
        lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    steps = EPOCHS * (len(session.labels) // BATCH)
    counted = steps - -(-(len(session.labels) // BATCH) // PARTS)
    return counted * BATCH / (lines[-1]["seconds"] - lines[0]["seconds"])


def decoded_per_second(session: Session) -> float:
    assert isinstance(session.images, StreamedImages)
    started = time.perf_counter()
    session.images[:]
    return len(session.labels) / (time.perf_counter() - started)


def measure(device: torch.device) -> dict[str, float | str]:
    os.environ["FSCIL_CACHE"] = "off"
    with tempfile.TemporaryDirectory() as root:
        write_photos(Path(root))
        sessions = {
            stream: folder.load(folder.FolderOptions(path=root, base_classes=CLASSES - 1, size=SIZE, stream=stream))
            .to(device)
            .sessions[0]
            for stream in ("never", "always")
        }
        rates = {"never": 0.0, "always": 0.0}
        for _ in range(ROUNDS):
            for stream, session in sessions.items():
                rates[stream] = max(rates[stream], trained_per_second(session, device))
        decoding = max(decoded_per_second(sessions["always"]) for _ in range(ROUNDS))
    return {
        "device": describe(device),
        "cores": os.cpu_count() or 1,
        "resident_images_per_second": round(rates["never"]),
        "streamed_images_per_second": round(rates["always"]),
        "decoded_images_per_second": round(decoding),
        "streamed_over_resident": round(rates["always"] / rates["never"], 3),
    }


def main() -> dict[str, float | str]:
    found = measure(choose_device(sys.argv[1] if len(sys.argv) > 1 else None))
    table = Table(title=f"pre-training a ResNet20 on {PHOTO[0]} x {PHOTO[1]} JPEGs at {SIZE} pixels, {found['device']}")
    for name in ("", "images/s", "over resident"):
        table.add_column(name, justify="right" if name else "left")
    for name in ("resident", "streamed", "decoded"):
        rate = float(found[f"{name}_images_per_second"])
        table.add_row(name, f"{rate:,.0f}", f"{rate / float(found['resident_images_per_second']):.2f}")
    Console().print(table)
    return found


if __name__ == "__main__":
    main()
