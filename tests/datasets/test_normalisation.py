"""Every dataset's images are normalised by the pixels of its base session, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fscil.benchmark import Benchmark
from fscil.datasets import digits, folder, folder_index, glyphs


def by_numpy(benchmark: Benchmark) -> tuple[list[float], list[float]]:
    pixels = benchmark.sessions[0].images[:].numpy().astype(np.float64) / 255
    return pixels.mean((0, 2, 3)).tolist(), pixels.std((0, 2, 3)).tolist()


def read(tree: Path, stream: str) -> Benchmark:
    return folder.load(folder.FolderOptions(path=str(tree), way=2, shot=2, size=16, stream=stream))


@pytest.mark.parametrize(
    "load",
    [
        lambda tree: digits.load(digits.DigitsOptions()),
        lambda tree: glyphs.load(glyphs.GlyphsOptions(images_per_class=5, test_images_per_class=1)),
        lambda tree: read(tree, "never"),
        lambda tree: read(tree, "always"),
    ],
    ids=["digits", "glyphs", "folder", "streamed folder"],
)
def test_mean_and_deviation_of_the_base_session(load: Callable[[Path], Benchmark], tree: Path) -> None:
    benchmark = load(tree)
    mean, std = by_numpy(benchmark)
    assert benchmark.mean == pytest.approx(mean, rel=1e-12)
    assert benchmark.std == pytest.approx(std, rel=1e-12)


@pytest.mark.parametrize("stream", ["never", "always"])
def test_only_training_images_of_base_classes_count(tree: Path, stream: str) -> None:
    def repaint(*paths: Path) -> Benchmark:
        for path in paths:
            Image.new("RGB", (20, 16), (255, 255, 255)).save(path, format="PNG")
        return read(tree, stream)

    items = folder_index.read_items(tree)
    trained, tested = folder.divide([item for item in items if item.class_name == "class0"], 0.2, 2)
    before = repaint()
    after = repaint(*(item.path for item in tested), *(tree / "class5").iterdir())
    assert (after.mean, after.std) == (before.mean, before.std)
    assert repaint(trained[0].path).mean != before.mean
