"""omniglot: the first thousand characters, in the order of their folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fscil import datasets
from fscil.datasets import data_root
from fscil.datasets.omniglot import FOLDER, OMNIGLOT
from fscil.errors import UserError


@pytest.fixture
def characters(tmp_path: Path) -> Path:
    """964 + 40 characters of 20 drawings each, as empty files."""
    for part, letters in (("images_background", 964), ("images_evaluation", 40)):
        for i in range(letters):
            folder = tmp_path / FOLDER / part / f"Alphabet{i // 50:02d}" / f"character{i % 50 + 1:02d}"
            folder.mkdir(parents=True)
            for drawing in range(1, 21):
                (folder / f"{i:04d}_{drawing:02d}.png").touch()
    return tmp_path


def test_fifteen_drawings_are_learned_and_five_tested(characters: Path) -> None:
    listing = OMNIGLOT.listing(characters)
    training, test = listing.counts()
    assert (set(training.values()), set(test.values()), len(training), len(test)) == ({15}, {5}, 1000, 1000)
    assert listing.class_names[0] == "Alphabet00/character01"
    assert [path.parts[-4] for path in listing.paths[963 * 15 : 965 * 15 : 15]] == [
        "images_background",
        "images_evaluation",
    ]
    assert listing.names[14] == "images_background/Alphabet00/character01/0000_15.png"
    assert listing.names[listing.training] == "images_background/Alphabet00/character01/0000_16.png"


def test_what_is_missing_is_named(characters: Path) -> None:
    drawing = characters / FOLDER / "images_background/Alphabet03/character07/0156_09.png"
    drawing.unlink()
    with pytest.raises(UserError, match=r"character07 has 19 drawings, not 20; put torchvision's folder"):
        OMNIGLOT.listing(characters)
    with pytest.raises(UserError, match="lacks images_background, images_evaluation"):
        OMNIGLOT.listing(characters / FOLDER)
    with pytest.raises(UserError, match="no data folder is given"):
        OMNIGLOT.listing(None)


@pytest.mark.slow
def test_ink_becomes_white_and_the_sizes_are_imagenets() -> None:
    root = data_root(None)
    if root is None or not (root / FOLDER).is_dir():
        pytest.skip(f"needs {FOLDER} under FSCIL_DATA")
    dataset = datasets.get("omniglot")
    benchmark = dataset.load(dataset.options(), root)
    assert [len(session.classes) for session in benchmark.sessions] == [600, *[50] * 8]
    assert [len(session.labels) for session in benchmark.sessions] == [9000, *[250] * 8]
    assert (len(benchmark.test_labels), len(benchmark.test(0)[1]), benchmark.warnings) == (5000, 3000, ())
    base = benchmark.sessions[0]
    assert isinstance(base.images, torch.Tensor)
    assert base.images.float().mean() < 60  # paper is black, the value of padding
    with Image.open(OMNIGLOT.listing(root).paths[0]) as drawing:
        small = drawing.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
    assert torch.equal(base.images[0].permute(1, 2, 0), torch.from_numpy(255 - np.array(small)))
