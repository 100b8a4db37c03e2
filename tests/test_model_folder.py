from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from fscil import encoders, methods, runs
from fscil.config import resolve
from fscil.engine import Engine
from fscil.engine.checkpoint import load_tensors
from fscil.methods import Context
from fscil.methods.cosine_network import CosineNetwork
from fscil.settings import make


@pytest.fixture
def folder(tiny_dataset: str, tmp_path: Path) -> Path:
    config = resolve("decoupled-cosine", tiny_dataset, seed=3)
    where = runs.RunEnvironment(
        torch.device("cpu"), tmp_path / "run", command="fscil run decoupled-cosine tiny --seed 3"
    )
    runs.start(config, where, Console(quiet=True))
    return tmp_path / "run"


def test_the_folder_is_all_that_is_needed_to_predict_the_same(folder: Path, tiny_benchmark: Any) -> None:
    """From config.json and model.safetensors alone, without the run."""
    facts = json.loads((folder / "model" / "config.json").read_text())
    tensors, about = load_tensors(folder / "model" / "model.safetensors")
    assert about == {"method": "decoupled-cosine"}
    benchmark = tiny_benchmark()
    cls = methods.get(facts["method"])
    settings = make(cls.Settings, facts["settings"])
    method = cls(settings, Context(Engine(), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), ""))  # mean and std are in the tensors
    encoder = encoders.build(settings.encoder, (0.0,) * 3, (1.0,) * 3)
    method.network = CosineNetwork(encoder, torch.zeros(len(facts["class_names"]), encoder.dim))
    method.network.load_state_dict(tensors)
    kept, _ = load_tensors(folder / "predictions.safetensors")
    assert method.logits(benchmark.test_images).argmax(1).tolist() == kept["predictions"][-1].tolist()


def test_config_json_names_classes_and_every_setting(folder: Path) -> None:
    facts = json.loads((folder / "model" / "config.json").read_text())
    config = resolve("decoupled-cosine", "tiny", seed=3)
    assert facts["class_names"] == [f"colour {i}" for i in range(7)]
    assert facts["classes_per_session"] == [4, 2, 1]
    assert facts["config_hash"] == config.hash
    assert facts["settings"] == config.settings
    assert (facts["preset"], facts["benchmark"], facts["seed"]) == ("decoupled-cosine", "tiny", 3)


def test_the_card_is_filled_from_the_run(folder: Path) -> None:
    card = (folder / "model" / "README.md").read_text()
    result = json.loads((folder / "result.json").read_text())
    assert "# decoupled-cosine on tiny" in card
    assert "A classifier over 7 classes: 4 learned from plenty of images" in card
    assert f"Last session {result['last']:.2f} %" in card
    assert "| seed | 3 |" in card
    assert result["config_hash"] in card
    assert "`fscil run decoupled-cosine tiny --seed 3`" in card


def test_nothing_is_pickled(folder: Path) -> None:
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} <= {
        ".toml", ".jsonl", ".json", ".safetensors", ".md", ".html", ".png"
    }  # fmt: skip
