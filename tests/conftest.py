"""Fixtures that several rooms share."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cli_call import Fscil, caller
from fscil import Learner, datasets, margins, metrics
from fscil.benchmark import Benchmark, split
from fscil.config import config_hash
from fscil.datasets import Dataset
from fscil.results import Result
from run_helpers import power_cut, start, undrawn

__all__ = ["power_cut", "start", "undrawn"]  # fixtures, too


@pytest.fixture(autouse=True, scope="session")
def encoder_cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the user's cache of encoders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSCIL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def fscil(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Fscil]:
    """fscil("run", "limit", ...): the command line in this process, inside an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    before = signal.getsignal(signal.SIGINT)
    yield caller(monkeypatch, capsys)
    signal.signal(signal.SIGINT, before)


def build_tiny_benchmark(
    base: int = 4,
    ways: tuple[int, ...] = (2, 1),
    shots: tuple[int, ...] = (2, 3),
    images: int = 8,
    test_images: int = 3,
    size: int = 8,
    trial: int = 1,
) -> Benchmark:
    """Noise around a different colour for each class: small enough for a ResNet20 to learn quickly."""
    classes = base + sum(ways)
    generator = torch.Generator().manual_seed(7)
    colours = torch.randint(40, 216, (classes, 3, 1, 1), generator=generator)

    def draw(count: int) -> torch.Tensor:
        noise = torch.randint(-40, 41, (classes, count, 3, size, size), generator=generator)
        return (colours[:, None] + noise).flatten(0, 1).clamp(0, 255).to(torch.uint8)

    train, test = draw(images), draw(test_images)
    return split(
        "tiny",
        [f"colour {label}" for label in range(classes)],
        train,
        torch.arange(classes).repeat_interleave(images),
        list(range(classes * images)),
        test,
        torch.arange(classes).repeat_interleave(test_images),
        base_classes=base,
        ways=ways,
        shots=shots,
        trial=trial,
    )


@dataclass(frozen=True)
class TinyOptions:
    trial: int = 1
    base: int = 4
    images: int = 8


@pytest.fixture
def tiny_benchmark() -> Callable[..., Benchmark]:
    return build_tiny_benchmark


@pytest.fixture
def tiny_dataset(monkeypatch: pytest.MonkeyPatch) -> str:
    """The tiny benchmark as the dataset "tiny", with default settings that keep runs short; returns its name."""

    def load(options: TinyOptions, root: Path | None) -> Benchmark:
        return build_tiny_benchmark(base=options.base, images=options.images, trial=options.trial)

    defaults = {
        "epochs": 1, "lr": 0.02, "batch": 16, "augmentation": "basic", "fake_way": 1, "fake_shot": 2, "fake_queries": 1,
        "meta_steps": 4, "meta_batch_steps": 2, "session_epochs": 2, "gas_steps": 50,
    }  # fmt: skip
    dataset = Dataset("tiny", "noisy colours", TinyOptions, load, defaults, lambda _: "nothing", lambda _: ["ok: tiny"])
    monkeypatch.setitem(datasets.BUILT_IN, "tiny", dataset)
    return "tiny"


@pytest.fixture
def photo_folder(tmp_path: Path) -> Callable[..., Path]:
    """photo_folder(classes, images, size): a tree of small photos, JPEG and PNG by turns, one colour per class."""

    def build(classes: int = 7, images: int = 8, size: int = 24, name: str = "photos") -> Path:
        rng = np.random.default_rng(11)
        for label in range(classes):
            colour = rng.integers(40, 216, 3)
            (tmp_path / name / f"class{label}").mkdir(parents=True)
            for i in range(images):
                noise = rng.integers(-40, 41, (size, size + 2 * (i % 5), 3))
                picture = Image.fromarray((colour + noise).clip(0, 255).astype(np.uint8))
                picture.save(tmp_path / name / f"class{label}" / f"{i}.{('jpg', 'png')[i % 2]}")
        return tmp_path / name

    return build


def scores_behind(
    labels: np.ndarray, predictions: np.ndarray, classes_per_session: tuple[int, ...], margin: float, seed: int
) -> margins.Scores:
    """Scores that give these predictions with this margin; an image's other best class is right now and then, too."""
    rng = np.random.default_rng([seed, 1])
    base, seen = classes_per_session[0], np.cumsum(classes_per_session)[:, None]
    judged, new_exists = predictions >= 0, (predictions >= 0) & (seen > base)
    other_base = np.where(rng.random(labels.shape) < 0.8, labels, 0) % base
    other_new = base + (labels - base) % np.maximum(seen - base, 1)
    to_base = predictions < base
    distance = rng.exponential(1.0, predictions.shape).astype(np.float32) + 2**-9
    return margins.scores_from(
        labels,
        np.where(judged, np.where(to_base, predictions, other_base), -1),
        np.where(new_exists, np.where(to_base, other_new, predictions), -1),
        np.where(judged, margin + np.where(to_base, distance, -distance), -np.inf),
        np.where(new_exists, 0.0, -np.inf),
        classes_per_session,
    )


@pytest.fixture
def make_result() -> Callable[..., Result]:
    """Builds a Result with sound, self-consistent numbers; fields can be overridden by name.

    `classes_per_session` decides the stream; images per class and the share of right answers are small and fixed.
    """

    def build(
        classes_per_session: tuple[int, ...] = (6, 2, 2), seed: int = 1, margin: float = 0.0, **fields: Any
    ) -> Result:
        classes, seen = sum(classes_per_session), np.cumsum(classes_per_session)
        rng = np.random.default_rng(seed)
        labels = np.repeat(np.arange(classes), 10)
        predictions = np.full((len(seen), len(labels)), -1)
        for i, count in enumerate(seen):
            here = labels < count
            guesses = rng.integers(0, count, here.sum())
            predictions[i, here] = np.where(rng.random(here.sum()) < 0.7, labels[here], guesses)
        scores = scores_behind(labels, predictions, classes_per_session, margin, seed)
        config = {"method": fields.get("method", "limit"), "preset": fields.get("preset", "limit"), "seed": seed}
        result = Result(
            **metrics.summarise(labels, predictions, classes_per_session),
            **margins.measures(scores, margin),
            method="limit",
            preset="limit",
            benchmark="glyphs",
            augmentation="autoaug",
            seed=seed,
            trial=1,
            seconds={"pretrain": {"seconds": 61.5, "cached": True}, "meta": {"seconds": 12.25, "cached": False}},
            captured=False,
            parameters={"inference": 270_000, "training_only": 12_000},
            exemplars=0,
            weights="none",
            warnings=[],
            note="",
            config_hash=config_hash(config),
            command=f"fscil run limit glyphs --seed {seed}",
            versions={"fscil": "0.1.0", "torch": "2.11.0"},
            device="cpu",
            split_checksum="0123456789abcdef",
            class_names=[f"class {i}" for i in range(classes)],
            classes_per_session=list(classes_per_session),
            trials=[],
        )
        return replace(result, **fields)

    return build


@pytest.fixture(scope="session")
def taught_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model that was taught class0 to class3, six photos each, and a folder with photos of two more."""
    root, rng = tmp_path_factory.mktemp("taught"), np.random.default_rng(3)
    for label in range(6):
        colour, folder = rng.integers(40, 216, 3), root / "photos" / f"class{label}"
        folder.mkdir(parents=True)
        for i in range(9):
            noise = rng.integers(-30, 31, (24, 30, 3))
            Image.fromarray((colour + noise).clip(0, 255).astype(np.uint8)).save(folder / f"{label}-{i}.png")
    learner = Learner("embedded")
    for label in range(4):
        learner.teach(f"class{label}", sorted((root / "photos" / f"class{label}").iterdir())[:6])
    learner.save(root / "model")
    return root / "model", root / "photos"


@pytest.fixture
def model(taught_model: tuple[Path, Path], tmp_path: Path) -> Path:
    shutil.copytree(taught_model[0], tmp_path / "flowers")
    return Path("flowers")


@pytest.fixture
def photos(taught_model: tuple[Path, Path], tmp_path: Path) -> Path:
    shutil.copytree(taught_model[1], tmp_path / "photos")
    return Path("photos")
