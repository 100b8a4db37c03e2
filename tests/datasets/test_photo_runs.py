"""From photos in a public layout to a result: colours are easy, so even short training must learn them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_call import Fscil
from fscil.datasets.imagenet import class_order
from photo_trees import Tree, write_imagenet, write_mini

SHORT = ["input_size=32", "augmentation=none", "recipe=small", "steps=20", "batch=32", "lr=0.02"]


@pytest.fixture
def hundred(tmp_path: Path) -> Iterator[Tree]:
    yield write_imagenet(tmp_path / "data", used=class_order()[:100])
    shutil.rmtree(tmp_path / "data")  # 120 MB of stored photos


def learned(fscil: Fscil, benchmark: str, root: Path) -> dict[str, Any]:
    found = fscil("run", "decoupled-cosine", benchmark, *SHORT, "--root", root, "--out", "run", "--json")
    assert found.code == 0, found.err
    result: dict[str, Any] = json.loads(found.out)
    assert len(result["accuracy"]) == 9
    assert min(result["accuracy"]) > 30  # chance: 1
    assert result["new"] > 30
    return result


@pytest.mark.slow
def test_miniimagenet(fscil: Fscil, tmp_path: Path) -> None:
    tree = write_mini(tmp_path / "data")
    result = learned(fscil, "miniimagenet", tree.root)
    assert result["class_names"] == tree.classes
    warnings = "\n".join(result["warnings"])
    assert "class n00000000 has 5 training images, not 500" in warnings
    assert "differ from the published lists" in warnings
    model = json.loads((tmp_path / "run" / "model" / "config.json").read_text())["model"]
    assert (model["encoder"], model["stored_size"], model["input_size"]) == ("resnet18", 92, 32)


@pytest.mark.slow
def test_imagenet100(fscil: Fscil, hundred: Tree) -> None:
    result = learned(fscil, "imagenet100", hundred.root)
    assert result["class_names"] == [hundred.classes[place] for place in class_order()[:100]]
