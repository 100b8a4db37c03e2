"""Saved models: a new process predicts what the run predicted; and class names for users' images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import fscil
from fscil import datasets, runs
from fscil.config import overrides_of, resolve
from fscil.datasets.decode import decode
from fscil.errors import UserError
from run_helpers import FEW, PAIRED, PLUS, SHORT, run_on_digits

SMALL = {"digits": [], "glyphs": ["images_per_class=5", "test_images_per_class=3"]}

# in a new process: every model under the first argument against its run's own predictions, from eight threads too
CHECK = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fscil
from fscil import datasets
from fscil.config import read_config
from safetensors.torch import load_file

for run in sorted(Path(sys.argv[1]).iterdir()):
    config = read_config(run / "config.toml")
    benchmark = datasets.get(config.benchmark).load(config.dataset_options(), None)
    model = fscil.load(run / "model")
    kept = load_file(run / "predictions.safetensors")["predictions"][-1]
    third = benchmark.test_images[::3]
    assert model.predict(third) == [benchmark.class_names[label] for label in kept[::3]], run
    some = third[::10]
    alone = model.predict_proba(some)
    with ThreadPoolExecutor(8) as pool:
        assert all((found == alone).all() for found in pool.map(model.predict_proba, [some] * 8)), run
    print(run.name)
"""


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("benchmark", ["digits", pytest.param("glyphs", marks=pytest.mark.slow)])
def test_a_new_process_predicts_what_the_run_predicted(benchmark: str, tmp_path: Path) -> None:
    presets = {**{name: (name, []) for name in FEW}, "paired": ("limit-plus", PAIRED)}
    for folder, (name, more) in presets.items():
        config = resolve(name, benchmark, overrides_of(name, benchmark, [*SHORT, *SMALL[benchmark], *more]))
        environment = runs.RunEnvironment(torch.device("cpu"), tmp_path / folder)
        runs.start(config, environment, Console(quiet=True))
    source = Path(fscil.__file__).parents[1]
    settings = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(tmp_path)], env=settings, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == sorted(presets)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_on_digits(tmp_path_factory.mktemp("model") / "run", *PLUS)


@pytest.fixture(scope="module")
def paired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_on_digits(tmp_path_factory.mktemp("paired") / "run", *PAIRED)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    dataset = datasets.get("digits")
    return dataset.load(dataset.options(), None).test_images[::40]


def test_names_and_probabilities(folder: Path, images: torch.Tensor) -> None:
    model = fscil.load(folder)  # a run folder works, too
    assert model.class_names == [str(digit) for digit in range(10)]
    probabilities = model.predict_proba(images)
    assert (probabilities.shape, probabilities.dtype) == ((len(images), 10), np.float32)
    assert np.allclose(probabilities.sum(1), 1, atol=1e-5)
    assert model.predict(images) == [model.class_names[label] for label in probabilities.argmax(1)]
    assert model.embed(images).shape == (len(images), 64)
    assert model.predict([]) == []


def test_an_image_may_come_in_any_form(folder: Path, images: torch.Tensor, tmp_path: Path) -> None:
    model = fscil.load(folder / "model")
    array = images[0].permute(1, 2, 0).numpy()
    Image.fromarray(array).save(tmp_path / "digit.png")
    forms: list[Any] = [
        tmp_path / "digit.png", str(tmp_path / "digit.png"), Image.fromarray(array), array, images[0], images[0].numpy()
    ]  # fmt: skip
    expected = model.predict_proba(images[:1])
    for form in forms:
        assert np.array_equal(model.predict_proba(form), expected)
    assert np.allclose(model.predict_proba(forms), expected, atol=1e-5)
    large = Image.fromarray(array).resize((90, 60))
    large.save(tmp_path / "large.png")
    stored = torch.from_numpy(decode((tmp_path / "large.png").read_bytes(), 32, "large")).permute(2, 0, 1)
    assert np.array_equal(model.predict_proba(large), model.predict_proba(stored))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("nowhere.jpg", r"nowhere\.jpg cannot be read"),
        (3.5, "is a float; give a path"),
        (np.zeros((4, 4, 3)), "array float64"),
        (np.zeros((5, 7), np.int64), "array int64"),
        ("a\0b", "cannot be read"),
        (np.zeros((0, 4, 3), np.uint8), "without a pixel"),
    ],
)
def test_what_is_no_image_is_refused(folder: Path, image: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        fscil.load(folder).predict([image])


def test_the_callers_image_stays_as_it_is(folder: Path, tmp_path: Path) -> None:
    Image.new("RGB", (400, 300)).save(tmp_path / "photo.jpg")
    with Image.open(tmp_path / "photo.jpg") as photo:
        fscil.load(folder).predict(photo)
        assert photo.size == (400, 300)


def test_arrays_may_be_views_and_batches_empty(folder: Path, images: torch.Tensor) -> None:
    model = fscil.load(folder)
    assert model.predict(images.numpy()[:, ::-1]) == model.predict(images.flip(1))
    assert model.predict(np.zeros((0, 3, 5, 5), np.uint8)) == []


def test_loading_draws_no_random_numbers_of_the_callers(folder: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    fscil.load(folder)
    assert torch.equal(torch.rand(1), expected)


def test_an_unknown_device_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="it is cpu or cuda"):
        fscil.load(folder, device="gpu")


def test_threads_agree_while_they_predict_one_image_each(folder: Path, images: torch.Tensor) -> None:
    alone = [fscil.load(folder).predict_proba(image) for image in images]
    model = fscil.load(folder)  # has kept nothing yet
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(model.predict_proba, images))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


def test_rows_can_be_taken_away_and_added_again(folder: Path, images: torch.Tensor) -> None:
    model = fscil.load(folder).model
    before, row = model(images), model.rows[6].clone()
    model.remove_rows([6])
    assert model(images).shape == (len(images), 9)
    assert model.base.tolist() == [True] * 4 + [False] * 5
    model.add_rows(row[None])
    again = model(images)
    assert torch.allclose(again, before[:, [0, 1, 2, 3, 4, 5, 7, 8, 9, 6]], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [PLUS, [*PLUS, "logits=inner", "mirror=true"], PAIRED],
    ids=["cosine", "inner, mirrored", "paired, shifted"],
)
def test_torch_export_takes_a_model(settings: list[str], images: torch.Tensor, tmp_path: Path) -> None:
    model = fscil.load(run_on_digits(tmp_path / "run", *settings)).model
    batch = torch.export.Dim("batch", min=2, max=256)
    with torch.no_grad():
        program = torch.export.export(model, (images[:5],), dynamic_shapes=({0: batch},))
        for n in (2, 7):
            expected = model(images[:n])
            assert torch.allclose(program.module()(images[:n]), expected, atol=1e-4 * float(expected.abs().max()))


def test_a_model_folder_keeps_shifts_and_pairs(paired: Path, images: torch.Tensor) -> None:
    facts = json.loads((paired / "model" / "config.json").read_text())["model"]
    assert (facts["shift"], facts["mirror"], facts["calibrator"]) == (1, True, "paired")
    model = fscil.load(paired).model
    assert (model.shift, model.mirror) == (1, True)
    assert model.rows.shape == (10, 2 * 64)
    assert (model.rows[:, 64:] != 0).any(1).tolist() == [True] * 4 + [False] * 6  # new classes have no trained row
    assert fscil.load(paired).embed(images).shape == (len(images), 64)  # without the second input
    plain = model(images)
    model.shift = 0
    assert not torch.allclose(model(images), plain)
