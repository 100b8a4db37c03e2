"""Taught, which corrects a model folder without its model, and the card that follows it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fscil import Learner, UserError
from fscil.learner import Taught
from learner_helpers import Digits, rows_of


def test_corrections_are_the_learners(folder: Path, digits: Digits, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    learner, taught = Learner.load(folder), Taught(tmp_path / "copy")
    for each in (learner, taught):
        each.forget(photo=digits["digit 0"][1])
        each.move(digits["digit 1"][0], "digit 2")
        each.rename("digit 2", "two")
        each.forget("digit 0")
        each.undo()
        each.hide_base()
    assert taught.photos() == learner.photos()
    assert [(step.verb, step.what) for step in taught.history()] == [(s.verb, s.what) for s in learner.history()]
    again = Learner.load(tmp_path / "copy")
    assert again.predict_proba(digits["digit 3"]).tolist() == learner.predict_proba(digits["digit 3"]).tolist()


@pytest.mark.parametrize("kind", ["transformer", "paired"])
def test_a_runs_model_is_corrected_before_it_was_taught(
    runs: dict[str, Path], digits: Digits, tmp_path: Path, kind: str
) -> None:
    shutil.copytree(runs[kind], tmp_path / "run")
    taught = Taught(tmp_path / "run")
    base = [each.name for each in taught.classes()]
    assert all(each.base for each in taught.classes())
    taught.rename(base[0], "first")
    learner = Learner.load(tmp_path / "run")
    assert set(learner.classes_.tolist()) == {"first", *base[1:]}
    learner.teach("new", digits["digit 7"][:3])
    assert [(each.name, each.photos) for each in taught.classes()][-1] == ("new", 3)


def test_a_folder_that_is_none_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UserError, match="name a model folder"):
        Taught(tmp_path / "nowhere")
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(UserError, match="copy the whole folder again"):
        Taught(folder)


def test_several_classes_are_taught_in_one_step(learner: Learner, digits: Digits) -> None:
    alone = Learner("embedded")
    lessons = [alone.teach(name, digits[name][:5]) for name in list(digits)[:3]]
    found = learner.teach_all({name: digits[name][:5] for name in list(digits)[:3]})
    assert found[-1] == lessons[-1]  # earlier ones had fewer classes to be told from
    assert [lesson.new for lesson in found] == [5, 5, 5]
    for name, row in rows_of(alone).items():
        assert row.equal(rows_of(learner)[name])
    assert len(learner.history()) == 1


def test_if_one_class_is_wrong_none_is_taught(learner: Learner, digits: Digits, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("no image")
    given = {
        "a": digits["digit 0"][:2],
        "b": [tmp_path / "bad.png"],
        "c": [*digits["digit 1"][:2], tmp_path / "bad.png"],
    }
    for skip in (False, True):
        with pytest.raises(UserError, match=r"bad\.png cannot be read"):
            learner.teach_all(given, skip_unreadable=skip)
        assert learner.history() == []
    del given["b"]
    lessons = learner.teach_all(given, skip_unreadable=True)
    assert [(each.name, each.new, len(each.unreadable)) for each in lessons] == [("a", 2, 0), ("c", 2, 1)]


def test_answers_come_one_by_one_and_errors_in_their_places(folder: Path, digits: Digits, tmp_path: Path) -> None:
    learner, bad = Learner.load(folder), tmp_path / "bad.png"
    bad.write_text("no image")
    paths = [path for name in digits for path in digits[name]][:70]
    found = list(learner.predict_each([*paths[:40], bad, *paths[40:]]))
    assert isinstance(found.pop(40), UserError)
    wanted = learner.predict(paths)
    assert [each.name for each in found] == [each.name for each in wanted]
    assert [each.score for each in found] == pytest.approx([each.score for each in wanted], rel=1e-4)
    assert [each.score for each in learner.predict_each([])] == []


def test_progress_is_told(learner: Learner, digits: Digits) -> None:
    told: list[int] = []
    learner.teach("digit 0", digits["digit 0"], progress=told.append)
    assert told == sorted(told)
    assert 0 < told[-1] < len(digits["digit 0"])


# -- the card --------------------------------------------------------------------------------------------------------
def test_the_card_follows_what_was_taught(folder: Path, digits: Digits) -> None:
    card = folder / "README.md"
    card.write_text("# Mine\n\n" + card.read_text() + "\nMy own words.\n")
    learner = Learner.load(folder)
    learner.teach("a|b <i>*", digits["digit 5"][:2])
    learner.teach_unknown(digits["digit 6"][:1])
    text = card.read_text()
    assert text.startswith("# Mine\n")
    assert text.endswith("\nMy own words.\n")
    assert "4 taught classes. 1 photo of none of them.\n" in text
    assert "| a\\|b &lt;i&gt;\\* | 2 |\n" in text
    for name in [*list(digits)[:3], "a|b <i>*"]:
        Taught(folder).forget(name)
    assert "No class was taught yet. 1 photo of none of them.\n" in card.read_text()
    assert card.read_text().count("## Taught") == 1


@pytest.mark.parametrize("state", ["missing", "folder", "not text", "link to nowhere"])
def test_a_card_that_cannot_be_written_stops_no_lesson(folder: Path, digits: Digits, state: str) -> None:
    card = folder / "README.md"
    card.unlink()
    if state == "folder":
        card.mkdir()
    elif state == "not text":
        card.write_bytes(b"\xff\xfe\x00")
    elif state == "link to nowhere":
        card.symlink_to(folder / "nowhere")
    assert Learner.load(folder).teach("new", digits["digit 7"][:2]).new == 2
    assert "new" in {each.name for each in Taught(folder).classes()}
    assert card.exists() == (state in ("folder", "not text"))
