"""check: every planted defect of a folder is named, layouts are understood, and nothing raises."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fscil.errors import UserError
from fscil.learner import check, folder_check
from fscil.learner.plan import FEW_PHOTOS, Speed, finetune_steps, held_out_of, measure_speed, plan_for
from fscil.learner.sources import model_from_nothing

Draw = Callable[..., Path]


@pytest.fixture(autouse=True)
def speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_check, "measure_speed", lambda model: Speed(1e-3, 3e-3))


@pytest.fixture
def draw() -> Draw:
    """A file with a picture of noise, another one for every file name."""

    def drawn(path: Path, size: int = 40, seed: int | None = None) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.RandomState(abs(hash(str(path))) % 2**31 if seed is None else seed)
        Image.fromarray(noise.randint(0, 256, (size, size, 3), np.uint8)).save(path)
        return path

    return drawn


@pytest.fixture
def photos(tmp_path: Path, draw: Draw) -> Path:
    """Three classes of four photos each."""
    for name in ("cat", "dog", "emu"):
        for i in range(4):
            draw(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


def kinds(folder: Path) -> dict[str, tuple[str, ...]]:
    return {problem.kind: problem.files for problem in check(folder, encoder="embedded").problems}


def test_a_good_folder_has_a_plan_and_no_problem(photos: Path) -> None:
    found = check(photos, encoder="embedded")
    assert found.ok
    assert found.problems == ()
    assert found.plan is not None
    assert found.classes == {"cat": 4, "dog": 4, "emu": 4}
    assert (found.plan.classes, found.plan.photos, found.plan.held_out, found.plan.image_size) == (3, 12, 3, 32)
    assert not found.plan.finetune
    assert not found.plan.limit
    assert found.plan.seconds > 0
    assert "too few" in str(found)
    assert "takes about" in str(found)
    json.dumps(found.as_dict())


def test_every_planted_defect_is_named(photos: Path, draw: Draw) -> None:
    whole = (photos / "cat" / "0.png").read_bytes()
    (photos / "cat" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (photos / "cat" / "text.jpg").write_text("not a photo")
    (photos / "cat" / "notes.txt").write_text("left out")
    (photos / "cat" / "copy.png").write_bytes(whole)
    (photos / "dog" / "fox.png").write_bytes((photos / "emu" / "1.png").read_bytes())
    os.symlink(photos / "nowhere", photos / "dog" / "link.png")
    draw(photos / "emu" / "tiny.png", size=5)
    draw(photos / "gnu" / "only.png")
    (photos / "yak").mkdir()
    draw(photos / "stray.png")
    draw(photos / "Cat" / "a.png")
    draw(photos / "Cat" / "b.png")
    found = kinds(photos)
    assert found["truncated"] == ("cat/cut.png",)
    assert found["not-an-image"] == ("cat/notes.txt",)
    assert set(found["duplicate"]) == {"cat/0.png", "cat/copy.png"}
    assert set(found["two-names"]) == {"dog/fox.png", "emu/1.png"}
    assert found["tiny"] == ("emu/tiny.png",)
    assert found["one-photo"] == ("gnu",)
    assert found["empty"] == ("yak",)
    assert found["stray"] == ("stray.png",)
    assert found["alike"] == ("Cat", "cat")
    checked = check(photos, encoder="embedded")
    assert not checked.ok
    unreadable = {file for problem in checked.problems if problem.kind == "unreadable" for file in problem.files}
    assert unreadable == {"cat/text.jpg", "dog/link.png"}
    assert checked.classes["cat"] == 4
    assert checked.classes["emu"] == 4


def test_imbalance_is_named(photos: Path, draw: Draw) -> None:
    for i in range(4, 30):
        draw(photos / "cat" / f"{i}.png")
    assert kinds(photos) == {"imbalance": ("cat",)}


def test_train_and_test_folders(tmp_path: Path, draw: Draw) -> None:
    for name in ("cat", "dog"):
        for part, n in (("train", 5), ("val", 2), ("test", 3)):
            for i in range(n):
                draw(tmp_path / part / name / f"{i}.png")
    draw(tmp_path / "train" / "loose.png")
    found = check(tmp_path, encoder="embedded")
    assert found.classes == {"cat": 7, "dog": 7}
    assert found.test_photos == 6
    assert found.plan is not None
    assert found.plan.held_out == 4
    assert [problem.files for problem in found.problems] == [("train/loose.png",)]


def test_folders_inside_a_class_belong_to_it(photos: Path, draw: Draw) -> None:
    draw(photos / "cat" / "2024" / "may" / "x.png")
    found = check(photos, encoder="embedded")
    assert found.classes["cat"] == 5
    assert [(problem.kind, problem.level) for problem in found.problems] == [("nested", "note")]


def test_links_in_circles_are_named(photos: Path) -> None:
    os.symlink(photos, photos / "cat" / "round")
    found = check(photos, encoder="embedded")
    assert [problem.files for problem in found.problems if problem.level == "bad"] == [("cat/round",)]
    assert found.classes["cat"] == 4


def test_a_folder_around_the_class_folders_is_seen_through(photos: Path) -> None:
    found = check(photos.parent, encoder="embedded")
    assert list(found.classes) == ["cat", "dog", "emu"]


def test_a_class_called_test_is_a_class(tmp_path: Path, draw: Draw) -> None:
    for name in ("test", "rest"):
        for i in range(2):
            draw(tmp_path / name / f"{i}.png")
    assert check(tmp_path, encoder="embedded").classes == {"rest": 2, "test": 2}


def test_one_class_cannot_be_learned(tmp_path: Path, draw: Draw) -> None:
    draw(tmp_path / "cat" / "a.png")
    found = check(tmp_path, encoder="embedded")
    assert found.plan is None
    assert not found.ok
    assert "two classes are needed" in str(found)


def test_names_that_cannot_be_classes_are_left_out(photos: Path, draw: Draw) -> None:
    draw(photos / "unknown" / "a.png")
    draw(photos / "line\nbreak" / "a.png")
    found = check(photos, encoder="embedded")
    assert [problem.kind for problem in found.problems] == ["name", "name"]
    assert list(found.classes) == ["cat", "dog", "emu"]
    assert all(line.isprintable() for line in found.sentences)


def test_no_folder_and_no_encoder(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        check(tmp_path / "none")
    with pytest.raises(UserError, match="is a file"):
        check(photos / "cat" / "0.png")
    found = check(photos, encoder=tmp_path / "none")
    assert found.plan is None
    assert [problem.kind for problem in found.problems] == ["encoder"]


def test_a_fifth_is_held_out_and_none_of_two() -> None:
    assert [held_out_of(n) for n in (1, 2, 3, 5, 10, 60)] == [0, 0, 1, 1, 2, 12]


def test_sizes_and_time_decide_what_is_tried() -> None:
    model, quick, slow = model_from_nothing("embedded"), Speed(1e-3, 3e-3), Speed(1.0, 3.0)

    def plan(classes: int, photos: int, speed: Speed = quick, finetune: bool | None = None) -> tuple[bool, ...]:
        counts = {f"class {i}": photos for i in range(classes)}
        found = plan_for(counts, classes * held_out_of(photos), model, speed, "cpu", finetune)
        return found.whiten, found.trained_rows, found.limit, found.finetune

    assert plan(2, 2) == (False, False, False, False)
    assert plan(4, 100) == (True, False, False, False)  # few classes
    assert plan(20, FEW_PHOTOS - 1) == (True, False, False, False)  # few photos
    assert plan(20, 30) == (True, True, True, True)
    assert plan(20, 30, slow) == (True, True, True, False)  # hours
    assert plan(20, 30, slow, finetune=True) == (True, True, True, True)
    assert plan(20, 30, finetune=False) == (True, True, True, False)
    assert plan(2, 100, finetune=True) == (True, False, False, False)  # no class could play a new one
    assert [finetune_steps(n) for n in (20, 1000, 100_000)] == [150, 469, 3000]


def test_speed_is_measured_by_the_clock() -> None:
    ticks = iter(range(100_000))
    speed = measure_speed(model_from_nothing("embedded"), clock=lambda: next(ticks))
    assert speed.embed > 0
    assert speed.train > 0
