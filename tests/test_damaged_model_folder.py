"""A model folder that was damaged, or made by an older version."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fscil
from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.errors import UserError
from fscil.model import ModelSpec
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
    {"mean": [10**400] * 3}, {"power": 1e308}, {"base_margin": 1e308},
    {"calibrator_options": {"scale": 1e308}}, {"calibrator_options": {"hidden": 10**9}},
    {"calibrator_options": {"memory": 1e308}}, {"calibrator_options": {"memory": None}}, {"calibrator_options": []},
    {"encoder": "resnet18"},
]  # fmt: skip


def damage_json(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(model: Path) -> None:
        facts = json.loads((model / "config.json").read_text())
        change(facts)
        (model / "config.json").write_text(json.dumps(facts))

    return damage


def wrong_in_model(values: dict[str, Any]) -> Callable[[Path], None]:
    return damage_json(lambda facts: facts["model"].update(values))


def change_tensors(change: Callable[[Any], object]) -> Callable[[Path], None]:
    def damage(model: Path) -> None:
        tensors, about = load_tensors(model / "model.safetensors")
        change(tensors)
        save_tensors(model / "model.safetensors", tensors, about)

    return damage


def put(name: str, content: bytes | None = None, device: str = "") -> Callable[[Path], None]:
    """In place of a file: this content, a link to this device, or a named pipe."""

    def damage(model: Path) -> None:
        (model / name).unlink()
        if content is not None:
            (model / name).write_bytes(content)
        elif device:
            (model / name).symlink_to(device)
        else:
            os.mkfifo(model / name)

    return damage


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
        (wrong_in_model({"calibrator": "cosine"}), "does not fit its options"),
        (
            lambda model: (model / "model.safetensors").write_bytes(b"\\x80\\x04K\\x01."),
            "cannot be read .* copy the whole folder",
        ),
        *((put(name), "(not a regular file)") for name in ("config.json", "model.safetensors")),
        *((put(name, device="/dev/zero"), "(not a regular file)") for name in ("config.json", "model.safetensors")),
        *((put(name, device=name), "levels of symbolic links") for name in ("config.json", "model.safetensors")),
        (put("config.json", b"[" * 100_000), "not valid JSON"),
        (put("config.json", b"\xff\xfe\xd8"), "not valid JSON"),
        (put("config.json", b'{"format": 1' + b"0" * 5000 + b"}"), "not valid JSON"),
        (put("config.json", b'{"format": 1e999}'), "not a model's configuration"),
        (damage_json(lambda facts: facts["class_names"].__setitem__(0, "\ud800")), "does not name its classes"),
        (damage_json(lambda facts: facts["class_names"].__setitem__(0, ["a"])), "does not name its classes"),
        (damage_json(lambda facts: facts.update(model=[])), "do not fit together"),
        (change_tensors(lambda tensors: tensors.update(rows=tensors["rows"][:3])), "do not fit together"),
        (change_tensors(lambda tensors: tensors.update(rows=tensors["rows"].to(torch.int8))), "rows is torch.int8"),
        (change_tensors(lambda tensors: tensors.update(base=tensors["base"].float())), "base is torch.float32"),
        (change_tensors(lambda tensors: tensors["rows"].fill_(torch.nan)), "NaN or infinite values, first in 'rows'"),
        (change_tensors(lambda tensors: tensors["whitening"][0].fill_(torch.inf)), "first in 'whitening'"),
        (change_tensors(lambda tensors: tensors.clear()), "do not fit together"),
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


NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([10**400, 1e308, 5e-324, -1, 0, 1, 32]))
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), NUMBERS, st.text(max_size=5), st.sampled_from(["\ud800", "resnet20", "paired"])
    ),
    lambda inside: st.one_of(st.lists(inside, max_size=4), st.dictionaries(st.text(max_size=5), inside, max_size=3)),
    max_leaves=5,
)
PLACES = [
    ("format",), ("class_names",), ("class_names", 0), ("model",),
    *(("model", field.name) for field in fields(ModelSpec)),
    *(("model", "calibrator_options", name) for name in ("hidden", "dropout", "cosine", "scale", "memory", "new")),
]  # fmt: skip


@settings(max_examples=150, deadline=None)  # each builds a model
@given(place=st.sampled_from(PLACES), value=VALUES)
def test_any_value_in_a_configuration_is_refused_or_gives_sound_answers(
    scratch: Path, place: tuple[Any, ...], value: Any
) -> None:
    facts = json.loads((scratch / "sound.json").read_bytes())
    inside = facts
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    (scratch / "config.json").write_text(json.dumps(facts))
    try:
        classifier = fscil.load(scratch)
    except UserError:
        return
    probabilities = classifier.predict_proba(np.zeros((1, 3, 32, 32), np.uint8))
    assert probabilities.shape == (1, len(classifier.class_names))
    assert np.isfinite(probabilities).all()
    "".join(classifier.class_names).encode()


@pytest.fixture(scope="module")
def scratch(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = copy_of(folder, tmp_path_factory.mktemp("scratch"))
    shutil.copyfile(model / "config.json", model / "sound.json")
    return model
