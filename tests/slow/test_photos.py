"""Photos stored larger than the encoder sees them, with weights from a file: from the folder to a prediction."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torchvision
from safetensors.torch import save_file

from cli_process import fscil_process

pytestmark = pytest.mark.slow


def test_256_pixel_photos_are_trained_at_224_with_weights_from_a_file(
    photo_folder: Callable[..., Path], tmp_path: Path
) -> None:
    photos = photo_folder(classes=5, images=7, size=280)
    torch.manual_seed(1)
    state = torchvision.models.resnet18(weights=None).state_dict()
    save_file(
        {name: tensor.half() if tensor.ndim > 1 else tensor for name, tensor in state.items()},
        tmp_path / "w.safetensors",
    )
    settings = [
        "size=256",
        "weights=w.safetensors",
        "base_classes=3",
        "way=2",
        "shot=2",
        "epochs=1",
        "batch=6",
        "lr=0.001",
    ]
    code, _, err = fscil_process(
        "run", "decoupled-cosine", "folder", f"path={photos}", *settings, "--out", "run", cwd=tmp_path
    )
    assert code == 0, err
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["weights"].startswith("w.safetensors sha256:")
    assert result["title"] == "photos"
    model = json.loads((tmp_path / "run" / "model" / "config.json").read_text())["model"]
    assert (model["encoder"], model["stored_size"], model["input_size"]) == ("resnet18", 256, 224)
    assert model["weights"] == result["weights"]
    (tmp_path / "w.safetensors").unlink()  # a saved model needs nothing but its folder

    photo = next((photos / "class4").iterdir())
    code, out, err = fscil_process("predict", "run/model", photo, "--json", cwd=tmp_path)
    assert code == 0, err
    (answer,) = json.loads(out)
    assert {each["name"] for each in answer["predictions"]} == {f"class{label}" for label in range(5)}
    assert abs(sum(each["probability"] for each in answer["predictions"]) - 1) < 1e-3
