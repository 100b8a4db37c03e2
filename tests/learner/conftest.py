from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from PIL import Image

from fscil import datasets
from fscil.learner import Learner
from learner_helpers import Digits
from run_helpers import PAIRED, PLUS, run_on_digits


@pytest.fixture(scope="session")
def digit_images() -> tuple[torch.Tensor, torch.Tensor]:
    """Handwritten digits of scikit-learn, uint8 [n, 3, 32, 32], and their labels."""
    dataset = datasets.get("digits")
    benchmark = dataset.load(dataset.options(), None)
    return benchmark.test_images, benchmark.test_labels


@pytest.fixture(scope="session")
def digits(digit_images: tuple[torch.Tensor, torch.Tensor], tmp_path_factory: pytest.TempPathFactory) -> Digits:
    """Twelve files of each digit, by its name."""
    folder = tmp_path_factory.mktemp("digits")
    images, labels = digit_images
    files: Digits = {}
    for label in range(10):
        for i, image in enumerate(images[labels == label][:12]):
            path = folder / f"{label}-{i}.png"
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
            files.setdefault(f"digit {label}", []).append(path)
    return files


@pytest.fixture
def learner() -> Learner:
    return Learner(encoder="embedded")


@pytest.fixture
def folder(learner: Learner, digits: Digits, tmp_path: Path) -> Path:
    """A model folder that was taught three digits, four photos each."""
    for name in list(digits)[:3]:
        learner.teach(name, digits[name][:4])
    learner.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Short runs of limit-plus on digits, by their calibrator; tests copy what they teach."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all workers: whoever comes first makes them
    made = {"transformer": PLUS, "paired": PAIRED}
    with FileLock(folder / "learner-runs.lock"):
        for name, settings in made.items():
            if not (folder / name).exists():
                run_on_digits(folder / f"{name}.part", *settings).rename(folder / name)
    return {name: folder / name for name in made}
