from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import fscil as package
from cli_call import Fscil
from cli_process import assert_one_clear_line
from fscil.datasets.decode import decode, read_bytes

needs_load = pytest.mark.skipif(not hasattr(package, "load"), reason="fscil.load is not there yet")


class Colours:
    """Stands in for a trained classifier: the redder an image, the more probable "rose" is."""

    class_names = ("rose", "tulip", "玫瑰 [red]")

    def __init__(self) -> None:
        self.asked: list[int] = []

    def predict_proba(self, images: Sequence[Path]) -> NDArray[np.float32]:
        self.asked.append(len(images))
        red = np.array([decode(read_bytes(path), 1, str(path))[0, 0, 0] / 255 for path in images])
        return np.stack([red, 0.75 * (1 - red), 0.25 * (1 - red)], 1).astype(np.float32)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, str, Colours]]:
    """The arguments of each fscil.load call, and what it returned."""
    calls: list[tuple[Path, str, Colours]] = []

    def load(folder: Path, device: str = "cpu") -> Colours:
        calls.append((folder, device, Colours()))
        return calls[-1][2]

    monkeypatch.setattr(package, "load", load, raising=False)
    return calls


Paint = Callable[..., Path]


@pytest.fixture
def paint(tmp_path: Path) -> Paint:
    def save(name: str, red: int = 51) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4), (red, 0, 0)).save(path, format="PNG")
        return path

    return save


def test_names_are_ranked_with_their_probabilities(
    fscil: Fscil, loaded: list[tuple[Path, str, Colours]], paint: Paint
) -> None:
    paint("a.png", 255)
    paint("b.png")
    found = fscil("predict", "model", "a.png", "b.png", "--device", "cpu")
    assert found.code == 0, found.err
    assert found.out.splitlines() == [
        "a.png", "   rose        100.0 %", "   tulip         0.0 %", "   玫瑰 [red]    0.0 %",
        "b.png", "   tulip        60.0 %", "   rose         20.0 %", "   玫瑰 [red]   20.0 %",
    ]  # fmt: skip
    assert [call[:2] for call in loaded] == [(Path("model"), "cpu")]


def test_json_is_one_list(fscil: Fscil, loaded: list[tuple[Path, str, Colours]], paint: Paint) -> None:
    paint("b.png")
    found = fscil("predict", "model", "b.png", "--top", "2", "--json")
    assert json.loads(found.out) == [
        {"image": "b.png", "predictions": [{"name": "tulip", "probability": 0.6}, {"name": "rose", "probability": 0.2}]}
    ]
    assert found.err == ""


def test_folders_stand_for_the_images_in_them(
    fscil: Fscil, loaded: list[tuple[Path, str, Colours]], paint: Paint, tmp_path: Path
) -> None:
    for name in ("photos/c.PNG", "photos/a.jpg", "photos/.b.png", "z.png", "named"):
        paint(name)
    (tmp_path / "photos" / "notes.txt").write_text("no image")
    (tmp_path / "photos" / "folder.png").mkdir()
    found = fscil("predict", "model", "z.png", "photos", "named", "--top", "1", "--json")
    assert [each["image"] for each in json.loads(found.out)] == ["z.png", "photos/a.jpg", "photos/c.PNG", "named"]


def test_many_images_are_read_in_parts(
    fscil: Fscil, loaded: list[tuple[Path, str, Colours]], paint: Paint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fscil.cli.predicting.AT_ONCE", 2)
    for i in range(5):
        paint(f"photos/{i}.png", 51 * i)
    found = json.loads(fscil("predict", "model", "photos", "--json").out)
    assert [each["predictions"][0]["name"] for each in found] == ["tulip", "tulip", "tulip", "rose", "rose"]
    assert loaded[0][2].asked == [2, 2, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("good.png", "missing.png"), "there is no image missing.png"),
        (("good.png", "two\nlines.png"), "there is no image two\\nlines.png"),
        (("good.png", "x" * 5000), "there is no image xxx"),
        (("good.png", "text.png"), "text.png cannot be read as an image"),
        (("empty",), "empty holds no image files"),
        (("good.png", "--device", "tpu"), "it is cpu or cuda"),
    ],
)
def test_what_cannot_be_named_is_one_line_and_exit_code_2(
    fscil: Fscil,
    loaded: list[tuple[Path, str, Colours]],
    paint: Paint,
    tmp_path: Path,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    paint("good.png")
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "empty").mkdir()
    found = fscil("predict", "model", *arguments)
    assert found.code == 2
    assert_one_clear_line(found.err)
    assert message in found.err
    assert found.out == ""


def test_odd_file_names_are_printed_and_do_no_harm(
    fscil: Fscil, loaded: list[tuple[Path, str, Colours]], paint: Paint
) -> None:
    names = ["new\nline.png", "\x1b[31mred.png", os.fsdecode(b"not-utf8-\xff.png"), "[b] :smile: ü.png"]
    for name in names:
        paint(name)
    found = fscil("predict", "model", *names, "--top", "1")
    assert found.code == 0, found.err
    shown = ["new\\nline.png", "\\x1b[31mred.png", "not-utf8-\\udcff.png", "[b] :smile: ü.png"]
    assert found.out.splitlines()[::2] == shown
    printed = json.loads(fscil("predict", "model", *names, "--json").out)
    assert [each["image"] for each in printed] == names


def test_top_is_at_least_one(fscil: Fscil, paint: Paint) -> None:
    paint("a.png")
    found = fscil("predict", "model", "a.png", "--top", "0")
    assert found.code == 2
    assert "Traceback" not in found.err


@needs_load
def test_a_trained_model_names_images(fscil: Fscil, tiny_dataset: str, paint: Paint, tmp_path: Path) -> None:
    assert fscil("run", "decoupled-cosine", "tiny", "--out", "run").code == 0
    paths = [paint(f"photos/{red}.png", red) for red in (40, 120, 200)]
    (tmp_path / "broken.png").write_text("no image")
    found = fscil("predict", "run/model", "photos", "--top", "99", "--json", "--device", "cpu")
    assert found.code == 0, found.err
    printed = json.loads(found.out)
    classifier = package.load(tmp_path / "run" / "model")
    for each in printed:
        assert sorted(one["name"] for one in each["predictions"]) == sorted(classifier.class_names)
        probabilities = [one["probability"] for one in each["predictions"]]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) == pytest.approx(1, abs=1e-4)
    assert {Path(each["image"]).name: each["predictions"][0]["name"] for each in printed} == dict(
        zip((path.name for path in paths), classifier.predict(paths), strict=True)
    )
    for arguments in (("run/model", "broken.png"), ("nowhere", "photos")):
        refused = fscil("predict", *arguments)
        assert refused.code == 2
        assert_one_clear_line(refused.err)
        assert (set(arguments) & {"broken.png", "nowhere"}).pop() in refused.err
