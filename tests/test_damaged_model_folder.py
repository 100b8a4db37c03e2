"""A model folder that was damaged, or made by an older version."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fscil
from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.errors import UserError
from run_helpers import PAIRED, PLUS, run_on_digits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_on_digits(tmp_path_factory.mktemp("model") / "run", *PLUS)


@pytest.fixture(scope="module")
def paired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_on_digits(tmp_path_factory.mktemp("paired") / "run", *PAIRED)


def copy_of(run: Path, parent: Path) -> Path:
    """A copy of the run's model folder, to be damaged."""
    return Path(shutil.copytree(run / "model", parent / "model"))


WRONG: list[dict[str, Any]] = [
    {"mean": ["a", "b", "c"]}, {"std": [0, 1, 1]}, {"input_size": 0}, {"input_size": 64}, {"stored_size": "32"},
    {"stored_size": 10**9}, {"power": None}, {"mirror": "no"}, {"base_margin": "a"}, {"shift": -1}, {"shift": 32},
    {"shift": 1.0}, {"shift": True}, {"shift": "1"}, {"shift": None},
    {"calibrator_options": {"dropout": 5}}, {"calibrator_options": {"cosine": True, "scale": "a"}},
]  # fmt: skip


def damage_json(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(model: Path) -> None:
        facts = json.loads((model / "config.json").read_text())
        change(facts)
        (model / "config.json").write_text(json.dumps(facts))

    return damage


def wrong_in_model(values: dict[str, Any]) -> Callable[[Path], None]:
    return damage_json(lambda facts: facts["model"].update(values))


def fewer_rows(model: Path) -> None:
    tensors, about = load_tensors(model / "model.safetensors")
    tensors["rows"] = tensors["rows"][:3]
    save_tensors(model / "model.safetensors", tensors, about)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda model: (model / "config.json").unlink(), "name a model folder"),
        (lambda model: (model / "config.json").write_text("{"), "not valid JSON"),
        (lambda model: (model / "config.json").write_text("[]"), "not a model's configuration"),
        (damage_json(lambda facts: facts.update(format=99)), "written by a newer fscil"),
        (damage_json(lambda facts: facts.pop("class_names")), "does not name its classes"),
        (damage_json(lambda facts: facts["class_names"].pop()), "do not fit together"),
        (damage_json(lambda facts: facts["model"].pop("mean")), "do not fit together"),
        *((wrong_in_model(wrong), "do not fit together") for wrong in WRONG),
        (damage_json(lambda facts: facts.update(format=True)), "not a model's configuration"),
        (damage_json(lambda facts: facts["class_names"].__setitem__(0, "1")), "does not name its classes"),
        (wrong_in_model({"encoder": "resnet19"}), "is unknown here; install"),
        (wrong_in_model({"calibrator": "nobody"}), "is unknown here; install"),
        (
            lambda model: (model / "model.safetensors").write_bytes(b"\\x80\\x04K\\x01."),
            "cannot be read .* copy the whole folder",
        ),
        (fewer_rows, "do not fit together"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(
    folder: Path, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    model = copy_of(folder, tmp_path)
    damage(model)
    with pytest.raises(UserError, match=message) as refused:
        fscil.load(model)
    assert "\n" not in str(refused.value)


def one_input(facts: dict[str, Any]) -> None:
    facts["model"].update(calibrator="cosine", calibrator_options={"scale": 16.0})


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts["model"]["calibrator_options"].update(trust="a"),
        lambda facts: facts["model"]["calibrator_options"].update(common=None),
        one_input,
    ],
    ids=["trust is a word", "common is nothing", "a calibrator of one input"],
)
def test_a_damaged_folder_of_pairs_is_refused_in_one_line(
    paired: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    model = copy_of(paired, tmp_path)
    damage_json(change)(model)
    with pytest.raises(UserError, match="do not fit together") as refused:
        fscil.load(model)
    assert "\n" not in str(refused.value)


def test_a_model_folder_from_before_shifts_is_still_read(folder: Path, tmp_path: Path) -> None:
    images = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    older = copy_of(folder, tmp_path)
    damage_json(lambda facts: facts["model"].pop("shift"))(older)
    assert np.array_equal(fscil.load(older).predict_proba(images), fscil.load(folder).predict_proba(images))
