from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from fscil import model_folder, runs
from fscil.benchmark import Benchmark
from fscil.config import Config, resolve
from fscil.engine.checkpoint import load_tensors
from fscil.model import ModelSpec
from fscil.model_folder import FORMAT
from fscil.results import read_result


@pytest.fixture
def config(tiny_dataset: str) -> Config:
    return resolve("decoupled-cosine", tiny_dataset, ["power=0.5", "shift=2"], seed=3)


@pytest.fixture
def folder(config: Config, tmp_path: Path) -> Path:
    runs.start(config, runs.RunEnvironment(torch.device("cpu"), tmp_path / "run"), Console(quiet=True))
    return tmp_path / "run"


def facts(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "model" / "config.json").read_text())


def test_config_json_says_what_the_model_is_built_from(folder: Path, tiny_benchmark: Callable[..., Benchmark]) -> None:
    tensors, about = load_tensors(folder / "model" / "model.safetensors")
    assert facts(folder)["format"] == about["format"] == FORMAT
    spec, benchmark = ModelSpec.from_json(facts(folder)["model"]), tiny_benchmark()
    assert spec == ModelSpec(
        encoder="resnet20",
        stored_size=8,
        input_size=8,
        mean=benchmark.mean,
        std=benchmark.std,
        power=0.5,
        shift=2,
        calibrator="cosine",
        calibrator_options={"scale": 16.0},
    )
    assert set(facts(folder)["model"]) == {field.name for field in dataclasses.fields(ModelSpec)}
    assert tensors["rows"].shape == (7, 64)
    assert tensors["base"].tolist() == [True] * 4 + [False] * 3
    assert not [name for name in tensors if name.startswith("memory.")]  # images that a method keeps are not published


def test_config_json_names_classes_and_every_setting(folder: Path, config: Config) -> None:
    found = facts(folder)
    assert found["class_names"] == [f"colour {i}" for i in range(7)]
    assert found["classes_per_session"] == [4, 2, 1]
    assert found["config_hash"] == config.hash
    run = found["run"]
    assert (run["settings"], run["options"]) == (config.settings, config.options)
    assert (run["preset"], run["method"], run["benchmark"]) == ("decoupled-cosine", "decoupled-cosine", "tiny")
    assert run["seed"] == 3


def test_the_card_is_filled_from_the_run(folder: Path) -> None:
    card = (folder / "model" / "README.md").read_text()
    result = json.loads((folder / "result.json").read_text())
    assert "# decoupled-cosine on tiny" in card
    assert "A classifier over 7 classes: 4 learned from plenty of images" in card
    assert f"Last session {result['last']:.2f} %" in card
    assert "| encoder | resnet20, weights none |" in card
    assert "| seed | 3 |" in card
    assert "images kept" not in card  # this method has no memory
    assert result["config_hash"] in card
    assert "`fscil run decoupled-cosine tiny power=0.5 shift=2 --seed 3`" in card


def test_the_card_claims_no_more_than_the_run_knows(folder: Path, config: Config) -> None:
    card = (folder / "model" / "README.md").read_text().replace("\n", " ")
    assert "Training ended with its last step, and the run used its test images only to measure the model." in card
    assert (
        "settings are the defaults of `decoupled-cosine` on `tiny`, except for `power=0.5`, `shift=2`. How they were"
        in card
    )
    assert "whether test images had a part in that, a run cannot know" in card
    assert "Note:" not in card
    spec, result = ModelSpec.from_json(facts(folder)["model"]), read_result(folder / "result.json")
    plain = dataclasses.replace(result, changed=[], note="for speed, training is short")
    card = model_folder.card(config, plain, spec)
    assert "`decoupled-cosine` on `tiny`. How" in card
    assert "\nNote: for speed, training is short.\n" in card


def test_nothing_is_pickled(folder: Path) -> None:
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} <= {
        ".toml", ".jsonl", ".json", ".safetensors", ".md", ".html", ".png"
    }  # fmt: skip
