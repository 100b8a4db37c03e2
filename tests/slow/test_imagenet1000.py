"""imagenet1000 with all its classes, but few and tiny images: 600 base classes, then 8 sessions of 50."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_process import fscil_process
from fscil.datasets.imagenet import class_order
from photo_trees import Tree, write_imagenet

pytestmark = pytest.mark.slow


@pytest.fixture
def thousand(tmp_path: Path) -> Iterator[Tree]:
    yield write_imagenet(tmp_path / "data", used=class_order(), training=6)
    shutil.rmtree(tmp_path / "data")  # 1.3 GiB of stored photos


def test_a_thousand_classes_from_files_to_a_result(thousand: Tree, tmp_path: Path) -> None:
    settings = ["input_size=32", "augmentation=none", "recipe=small", "steps=100", "lr=0.02", "encoder=resnet20"]
    code, out, err = fscil_process("data", "prepare", "imagenet1000", "--root", "data", cwd=tmp_path)
    assert code == 0, err
    assert "imagenet1000: 7000 images are now at" in out
    code, out, err = fscil_process(
        "run", "decoupled-cosine", "imagenet1000", *settings, "--root", "data", "--out", "run", "--json", cwd=tmp_path
    )
    assert code == 0, err
    result = json.loads(out)
    assert result["classes_per_session"] == [600] + [50] * 8
    assert result["class_names"] == [thousand.classes[place] for place in class_order()]
    assert min(result["accuracy"]) > 5  # chance: 0.1 to 0.17
    assert result["new"] > 5
