"""fit as users run it, on handwritten digits: fine-tuning pays, and what is promised on held-out photos is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from fscil import datasets
from fscil.learner import fit

pytestmark = pytest.mark.slow

TRAIN = 30  # of each digit; about a minute on two cores


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    dataset = datasets.get("digits")
    benchmark = dataset.load(dataset.options(), None)
    for label in range(10):
        images = benchmark.test_images[benchmark.test_labels == label]
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(label))  # writers come one by one
        for i, image in enumerate(images[order]):
            part = tmp_path / "photos" / ("train" if i < TRAIN else "test") / f"digit {label}"
            part.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(part / f"{i}.png")
    return tmp_path / "photos"


def test_fine_tuning_pays_on_digits(photos: Path) -> None:
    fitted = fit(photos, encoder="embedded", finetune=True)
    chosen = {choice.question: choice for choice in fitted.choices}
    assert chosen["encoder"].chosen == "fine-tuned"
    assert chosen["encoder"].scores["fine-tuned"] > chosen["encoder"].scores["encoder as it is"] + 3
    assert fitted.test_accuracy is not None
    assert fitted.accuracy is not None
    assert fitted.test_accuracy > 90
    assert abs(fitted.test_accuracy - fitted.accuracy) < 8  # 42 photos say it to about 3 points
