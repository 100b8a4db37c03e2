"""The learner: teaching and predicting beside the encoder's own time, and with ten thousand classes."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image

from benchmarks.closed_form import in_turns
from benchmarks.figures import Figure
from fscil import model as models
from fscil.learner import Learner
from fscil.learner.changes import Sample
from fscil.learner.knowledge import Knowledge
from fscil.learner.saving import save
from fscil.learner.store import TAUGHT
from fscil.model_folder import TAUGHT as TAUGHT_FILE
from fscil.model_folder import load_model
from fscil.pictures import decode_each, stacked

SHOTS = 5


def measure() -> Iterator[Figure]:
    yield from beside_the_encoder("embedded")
    with tempfile.TemporaryDirectory() as place:
        yield from beside_the_encoder(str(untrained(Path(place) / "model", "resnet18", 256, 224)))
    for classes in (100, 10_000):
        yield from with_classes(classes, 64)
    yield from with_classes(10_000, 512)


def untrained(folder: Path, encoder: str, stored: int, size: int) -> Path:
    """A model folder without classes; time does not depend on weights."""
    spec = models.ModelSpec(encoder, stored, size, (0.5,) * 3, (0.25,) * 3, calibrator_options={"scale": 16.0})
    save(Knowledge(models.build(spec, 0), (), None), folder, None)
    return folder


def noise(count: int, size: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def beside_the_encoder(encoder: str) -> Iterator[Figure]:
    """Teaching five photos and predicting one, against embedding the same decoded photos; ten classes are known.

    Medians. Decoding is that of JPEG files as cameras write them, or of PNG files where the encoder sees tiny images.
    """
    learner, number = Learner(encoder), iter(range(1_000_000))
    model = learner._knowledge.model
    size = model.spec.stored_size
    for i in range(10):
        learner.teach(f"class {i}", noise(SHOTS, size, i + 1))
    five, one = (stacked(noise(count, size, 0), size) for count in (SHOTS, 1))
    with tempfile.TemporaryDirectory() as place:
        files = photo_files(Path(place), size)

        def decode(count: int) -> None:
            list(decode_each(files[:count], size))

        ms = in_turns(
            10, median, predict=lambda: learner.predict(one), encode_one=lambda: model.embed_here(one),
            decode_one=lambda: decode(1),
        )  # fmt: skip
        ms |= in_turns(
            10, median, teach=lambda: learner.teach(f"new {next(number)}", five),
            encode_five=lambda: model.embed_here(five), decode_five=lambda: decode(SHOTS),
            undo=learner.undo,  # so that ten classes are known every time
        )  # fmt: skip
    name = "embedded" if encoder == "embedded" else model.spec.encoder
    for verb, count, what in (("teach", "five", "five photos"), ("predict", "one", "one photo")):
        alone, decoding = ms[f"encode_{count}"], ms[f"decode_{count}"]
        measured = {
            f"{verb}, ms": ms[verb],
            "the encoder alone, ms": alone,
            "decoding, ms": decoding,
            "share of the total with decoding, %": 100 * ms[verb] / (ms[verb] + decoding),
        }
        yield Figure(f"{verb} {what}, {name}", ms[verb] / alone, "times the encoder's time", measured)


def photo_files(folder: Path, size: int) -> list[Path]:
    """Five files of smooth colours with some noise: of a camera's 12 megapixels, or as small as what is stored."""
    width, height, suffix = (4000, 3000, "jpg") if size > 100 else (size, size, "png")
    files = []
    for i in range(SHOTS):
        rng = np.random.default_rng(i)
        smooth = Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).resize(
            (width, height), Image.Resampling.BICUBIC
        )
        noisy = np.clip(np.asarray(smooth).astype(np.int16) + rng.integers(-12, 13, (height, width, 1)), 0, 255)
        files.append(folder / f"{i}.{suffix}")
        Image.fromarray(noisy.astype(np.uint8)).save(files[-1], quality=90)
    return files


def with_classes(classes: int, dim: int) -> Iterator[Figure]:
    """Load, teach one more and predict, without the encoder's time; classes of five photos."""
    encoder = {64: "resnet20", 512: "resnet18-32"}[dim]
    with tempfile.TemporaryDirectory() as place:
        folder = untrained(Path(place) / "model", encoder, 32, 32)
        learner = Learner.load(folder)
        rng = np.random.default_rng(0)
        centres = rng.random((classes, dim), np.float32)
        vectors = (centres[:, None] + 0.3 * rng.random((classes, SHOTS, dim), np.float32)).reshape(-1, dim)
        names = [f"class {i // SHOTS}" for i in range(len(vectors))]
        samples = [
            Sample(row, hashlib.sha256(row.tobytes()).digest(), f"photo {i}.jpg") for i, row in enumerate(vectors)
        ]
        learner._add("teach", names, samples, TAUGHT)
        sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
        model, base = load_model(folder)
        image, five, number = noise(1, 32, 0), noise(SHOTS, 32, 1), iter(range(1_000_000))
        encode_one = in_turns(0.5, one=lambda: learner._knowledge.model.embed_here(image))["one"]
        encode_five = in_turns(0.5, five=lambda: learner._knowledge.model.embed_here(five))["five"]
        started = time.perf_counter()
        Knowledge(model, base, folder)
        load = 1000 * (time.perf_counter() - started)
        fresh = Learner.load(folder)
        started = time.perf_counter()
        fresh.predict(image)
        first = 1000 * (time.perf_counter() - started) - encode_one
        ms = in_turns(1, predict=lambda: fresh.predict(image))
        ms |= in_turns(3, teach=lambda: fresh.teach(f"new {next(number)}", five))
        measured = {
            "load, ms": load,
            "first prediction, ms": first,
            "prediction, ms": ms["predict"] - encode_one,
            "teaching five photos, ms": ms["teach"] - encode_five,
            "classes.safetensors, MB": sizes[TAUGHT_FILE] / 1e6,
            "the model folder, MB": sum(sizes.values()) / 1e6,
        }
        slowest = max(load, first, ms["teach"] - encode_five) / 1000
        yield Figure(f"a learner of {classes} classes, d = {dim}", slowest, "seconds for the slowest verb", measured)
