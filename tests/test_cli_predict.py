from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fscil as package
from cli_call import Fscil
from cli_process import assert_one_clear_line, popen
from fscil.datasets.decode import decode, read_bytes
from fscil.errors import UserError
from fscil.learner import Learner, Prediction, Rival

NAMES = ("rose", "tulip", "玫瑰 [red]")


class Colours:
    """Stands in for a taught learner: the redder an image, the more probable "rose" is; black is unknown."""

    def predict_each(self, images: Sequence[Path], unknown: bool, rivals: int) -> Iterator[Prediction | UserError]:
        for path in images:
            try:
                red = decode(read_bytes(path), 1, str(path))[0, 0, 0] / 255
            except UserError as error:
                yield error
                continue
            probabilities = np.array([red, 0.75 * (1 - red), 0.25 * (1 - red)])
            best, *others = (-probabilities).argsort(kind="stable").tolist()
            reason = "too dark" if unknown and red == 0 else ""
            rest = tuple(Rival(NAMES[i], float(probabilities[i])) for i in others[:rivals])
            name = "unknown" if reason else NAMES[best]
            yield Prediction(name, float(probabilities[best]), NAMES[best], 1.0, rest, True, reason)


Loaded = list[tuple[Path, str]]


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """The arguments of each call of Learner.load."""
    calls: Loaded = []

    def load(folder: Path, device: str) -> Colours:
        calls.append((folder, device))
        return Colours()

    monkeypatch.setattr(Learner, "load", load)
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


def test_an_image_is_a_line(fscil: Fscil, loaded: Loaded, paint: Paint) -> None:
    paint("a.png", 255)
    paint("bb.png")
    paint("c.png", 0)
    found = fscil("predict", "model", "a.png", "bb.png", "c.png", "--device", "cpu")
    assert found.code == 0, found.err
    assert found.out.splitlines() == [
        "a.png   rose 100.0 %",
        "bb.png  tulip 60.0 %",
        "c.png   unknown (too dark; tulip 75.0 %)",
    ]
    assert loaded == [(Path("model"), "cpu")]
    assert fscil("predict", "model", "c.png", "--no-unknown", "--top", "3").out.splitlines() == [
        "c.png  tulip 75.0 %, 玫瑰 [red] 25.0 %, rose 0.0 %"
    ]


def test_json_is_one_list(fscil: Fscil, loaded: Loaded, paint: Paint) -> None:
    paint("b.png")
    found = fscil("predict", "model", "b.png", "--top", "2", "--json")
    assert json.loads(found.out) == [
        {
            "image": "b.png", "name": "tulip", "reason": "", "calibrated": True,
            "predictions": [{"name": "tulip", "probability": 0.6}, {"name": "rose", "probability": 0.2}],
        }
    ]  # fmt: skip
    assert found.err == ""


def test_csv_has_a_row_for_each_image(fscil: Fscil, loaded: Loaded, paint: Paint) -> None:
    paint('a, "b".png', 255)
    paint("c.png", 0)
    found = fscil("predict", "model", 'a, "b".png', "c.png", "--csv", "--top", "2")
    assert found.out.splitlines() == [
        "image,name,best,probability,reason,class_2,probability_2",
        '"a, ""b"".png",rose,rose,1.000000,,tulip,0.000000',
        "c.png,unknown,tulip,0.750000,too dark,玫瑰 [red],0.250000",
    ]


def test_folders_stand_for_the_images_in_them(fscil: Fscil, loaded: Loaded, paint: Paint, tmp_path: Path) -> None:
    for name in ("photos/c.PNG", "photos/a.jpg", "photos/.b.png", "z.png", "named"):
        paint(name)
    (tmp_path / "photos" / "notes.txt").write_text("no image")
    (tmp_path / "photos" / "folder.png").mkdir()
    found = fscil("predict", "model", "z.png", "photos", "named", "--json")
    assert [each["image"] for each in json.loads(found.out)] == ["z.png", "photos/a.jpg", "photos/c.PNG", "named"]


@pytest.mark.parametrize("separator", ["\n", "\r\n", "\0"])
def test_images_may_be_listed_on_standard_input(
    fscil: Fscil, loaded: Loaded, paint: Paint, monkeypatch: pytest.MonkeyPatch, separator: str
) -> None:
    for name in ("first.png", "b c.png", "photos/d.png"):
        paint(name)
    listed = separator.join(["b c.png", "photos", ""])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(listed.encode())))
    found = fscil("predict", "model", "first.png", "-", "--json")
    assert [each["image"] for each in json.loads(found.out)] == ["first.png", "b c.png", "photos/d.png"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n \n")))
    refused = fscil("predict", "model", "-")
    assert (refused.code, refused.out) == (2, "")
    assert "names no images" in refused.err


def test_what_cannot_be_read_is_skipped_only_when_told_so(
    fscil: Fscil, loaded: Loaded, paint: Paint, tmp_path: Path
) -> None:
    paint("photos/a.png", 255)
    (tmp_path / "photos" / "b.png").write_text("no image")
    refused = fscil("predict", "model", "photos")
    assert (refused.code, refused.out) == (2, "")
    assert_one_clear_line(refused.err)
    found = fscil("predict", "model", "photos", "--skip-unreadable")
    assert (found.code, found.out) == (0, "photos/a.png  rose 100.0 %\n")
    assert found.err.startswith("skipped: photos/b.png cannot be read as an image")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("good.png", "missing.png"), "there is no image missing.png"),
        (("good.png", "two\nlines.png"), "there is no image two\\nlines.png"),
        (("good.png", "x" * 5000), "there is no image xxx"),
        (("good.png", "text.png"), "text.png cannot be read as an image"),
        (("empty",), "empty holds no image files"),
        (("good.png", "--device", "tpu"), "it is cpu or cuda"),
        (("good.png", "--csv", "--json"), "--csv or --json"),
    ],
)
def test_what_cannot_be_named_is_one_line_and_exit_code_2(
    fscil: Fscil,
    loaded: Loaded,
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


def test_odd_file_names_are_printed_and_do_no_harm(fscil: Fscil, loaded: Loaded, paint: Paint) -> None:
    names = ["new\nline.png", "\x1b[31mred.png", os.fsdecode(b"not-utf8-\xff.png"), "[b] :smile: ü.png"]
    for name in names:
        paint(name)
    found = fscil("predict", "model", *names)
    assert found.code == 0, found.err
    shown = ["new\\nline.png", "\\x1b[31mred.png", "not-utf8-\\udcff.png", "[b] :smile: ü.png"]
    assert [line.partition("  ")[0] for line in found.out.splitlines()] == shown
    assert len(fscil("predict", "model", *names, "--csv").out.splitlines()) == 6  # a name is quoted over two lines
    printed = json.loads(fscil("predict", "model", *names, "--json").out)
    assert [each["image"] for each in printed] == names


def test_top_is_at_least_one(fscil: Fscil, paint: Paint) -> None:
    paint("a.png")
    found = fscil("predict", "model", "a.png", "--top", "0")
    assert found.code == 2
    assert "Traceback" not in found.err


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


def test_a_list_is_read_from_a_pipe(paint: Paint, tmp_path: Path) -> None:
    learner = Learner("embedded")
    learner.teach("red", paint("red.png", 255))
    learner.save(tmp_path / "model")
    process = popen("predict", "model", "-", cwd=tmp_path, stdin=-1)
    out, err = process.communicate("red.png\n")
    assert (process.returncode, out, err) == (0, "red.png  red 100.0 %\n", "")
