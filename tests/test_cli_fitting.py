"""fscil check, fit and export: what they print and leave; how well fit learns is tested with the learner."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli_call import Fscil
from cli_process import assert_one_clear_line

needs_fit = pytest.mark.skipif(find_spec("fscil.learner.fitting") is None, reason="fit is not there yet")
needs_export = pytest.mark.skipif(find_spec("fscil.export") is None, reason="export is not there yet")
PhotoFolder = Callable[..., Path]


@needs_fit
def test_three_commands_from_photos_to_a_taught_class(fscil: Fscil, photo_folder: PhotoFolder) -> None:
    photos = photo_folder(classes=4, images=5)
    new = (photos / "class3").rename(photos.parent / "tulip")
    fitted = fscil("fit", photos, "--out", "flowers", "--encoder", "embedded")
    assert fitted.code == 0, fitted.err
    assert fitted.out.splitlines()[-2] == "model   flowers"
    assert not {*fitted.out.splitlines()} & {*fitted.err.splitlines()}  # on a terminal nothing is said twice
    assert fscil("teach", "flowers", new).out.startswith("taught tulip (5 new photos), named after its folder")
    answers = json.loads(fscil("predict", "flowers", new, "--no-unknown", "--json").out)
    assert [each["name"] for each in answers] == ["tulip"] * 5
    assert {one["name"] for one in answers[0]["predictions"]} == {"class0", "class1", "class2", "tulip"}


@needs_fit
def test_a_check_says_whether_fit_would_go_on(fscil: Fscil, photo_folder: PhotoFolder) -> None:
    photos = photo_folder(classes=3, images=4)
    found = fscil("check", photos, "--encoder", "embedded")
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("3 classes, 12 photos")
    (photos / "class0" / "bad.png").write_text("no image")
    found = fscil("check", photos, "--encoder", "embedded", "--json")
    facts = json.loads(found.out)
    assert (found.code, facts["ok"]) == (1, False)
    assert ["bad.png" in problem["sentence"] for problem in facts["problems"]] == [True]
    refused = fscil("fit", photos, "--out", "flowers", "--encoder", "embedded")
    assert refused.code == 2
    assert_one_clear_line(refused.err)
    fitted = fscil("fit", photos, "--out", "flowers", "--encoder", "embedded", "--skip-bad", "--json")
    assert (fitted.code, json.loads(fitted.out)["model"]) == (0, "flowers")


@needs_fit
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("check nowhere", "does not exist"),
        ("fit photos", "missing option '--out'"),
        ("fit photos --out photos", "exists already"),
        ("fit photos --out new --encoder nowhere", "the encoder nowhere: there is no such file or folder"),
        ("fit photos --out new --encoder photos/class0/0.jpg", "0.jpg is no file of weights"),
        ("fit photos --out new --device tpu", "cpu or cuda"),
    ],
)
def test_mistakes_are_one_line(fscil: Fscil, photo_folder: PhotoFolder, arguments: str, message: str) -> None:
    photos = photo_folder(classes=2, images=3)
    found = fscil(*arguments.split())
    assert (found.code, found.out) == (2, "")
    assert_one_clear_line(found.err)
    assert message in found.err
    assert [path.name for path in photos.parent.iterdir()] == ["photos"]


@pytest.mark.slow
@needs_export
def test_a_model_is_exported(fscil: Fscil, model: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = fscil("export", model, "--to", "onnx")
    assert found.code == 0, found.err
    assert found.out.startswith("wrote flowers.onnx (1.")
    assert found.out.endswith("MiB, 4 classes)\n")
    again = fscil("export", model)
    assert (again.code, again.out) == (2, "")
    assert "exists already" in again.err


def test_a_format_that_is_not_known_is_refused(fscil: Fscil, model: Path) -> None:
    found = fscil("export", model, "--to", "coreml")
    assert (found.code, found.out) == (2, "")
    assert "known are onnx" in found.err
