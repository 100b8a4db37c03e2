"""fscil sort: a plan first, copies or moves, a list to undo it, and nothing is ever overwritten."""

from __future__ import annotations

import json
import os
import signal
import string
from pathlib import Path
from typing import Any

import pytest

from cli_call import Fscil
from fscil.learner import sorting
from fscil.learner.safe_names import LONGEST, safe_folders
from fscil.learner.sorting import Placed, carry_out, undo, write_list


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def sort_json(fscil: Fscil, *arguments: str | Path) -> dict[str, Any]:
    found = fscil("sort", *arguments, "--json")
    assert found.code == 0, found.err
    facts: dict[str, Any] = json.loads(found.out)
    return facts


@pytest.mark.parametrize("move", [False, True])
def test_photos_go_to_their_classes_and_come_back(
    fscil: Fscil, model: Path, photos: Path, tmp_path: Path, move: bool
) -> None:
    before = tree(photos)
    options = ["--move"] if move else []
    given = (model, photos / "class0", photos / "class4", "--to", "out", *options)
    planned = fscil("sort", *given)
    assert planned.code == 0
    assert planned.out.splitlines()[-1].endswith("nothing was done yet: add --yes to do it")
    assert not (tmp_path / "out").exists()
    assert fscil("sort", *given, "--dry-run").out == planned.out
    plan = sort_json(fscil, *given)
    assert not (tmp_path / "out").exists()
    lines = planned.out.splitlines()[:-1]
    assert [line.endswith("%)") for line in lines] == [each["name"] != "unknown" for each in plan["photos"]]
    assert len({line.endswith("%)") for line in lines}) == 2  # how sure it is of another class says nothing here

    done = sort_json(fscil, *given, "--yes")
    assert done["photos"] == plan["photos"]
    for each in plan["photos"]:
        assert (tmp_path / "out" / each["to"]).read_bytes() == before[each["photo"]]
        assert os.path.exists(each["photo"]) is not move
        assert each["to"].partition("/")[0] == each["name"]
    assert {each["name"] for each in plan["photos"]} >= {"class0"}

    undone = fscil("sort", "--undo", str(done["list"]))
    assert undone.out == "took back 18 photos\n"
    assert tree(photos) == before
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(fscil: Fscil, model: Path, photos: Path, tmp_path: Path) -> None:
    same = tmp_path / "other" / "0-0.png"
    same.parent.mkdir()
    same.write_bytes((photos / "class0" / "0-1.png").read_bytes())
    (tmp_path / "out" / "class0").mkdir(parents=True)
    (tmp_path / "out" / "class0" / "0-0.png").write_text("mine")
    given = (model, photos / "class0" / "0-0.png", same, "--to", "out", "--yes")
    done = sort_json(fscil, *given)
    assert [each["to"] for each in done["photos"]] == [
        "class0/0-0 (2).png", "class0/0-0 (3).png",
    ]  # fmt: skip
    again = sort_json(fscil, *given)
    assert [each["to"] for each in again["photos"]] == [
        "class0/0-0 (4).png", "class0/0-0 (5).png",
    ]  # fmt: skip
    assert (tmp_path / "out" / "class0" / "0-0.png").read_text() == "mine"
    for facts in (done, again):
        assert fscil("sort", "--undo", str(facts["list"])).code == 0
    assert [str(path.relative_to(tmp_path)) for path in (tmp_path / "out").rglob("*")] == [
        "out/class0", "out/class0/0-0.png",
    ]  # fmt: skip


def test_photos_that_are_where_they_belong_stay(fscil: Fscil, model: Path, photos: Path) -> None:
    first = sort_json(fscil, model, photos / "class0", "--to", "out", "--yes", "--move")
    right = [each for each in first["photos"] if each["name"] == "class0"]
    again = fscil("sort", model, "out/class0", "--to", "out", "--yes")
    assert again.out == f"{len(right)} photos are where they belong already\n"


def test_undo_keeps_what_was_changed_since(fscil: Fscil, model: Path, photos: Path, tmp_path: Path) -> None:
    done = sort_json(fscil, model, photos / "class0", "--to", "out", "--yes")
    copies = [tmp_path / "out" / each["to"] for each in done["photos"]]
    copies[0].write_text("edited")
    copies[1].unlink()
    found = fscil("sort", "--undo", str(done["list"]))
    assert found.out.splitlines()[0] == "took back 7 photos"
    assert "differs from" in found.out.splitlines()[1]
    assert copies[0].read_text() == "edited"
    assert os.path.exists(str(done["list"]))

    moved = sort_json(fscil, model, photos / "class1", "--to", "moved", "--yes", "--move")
    first = moved["photos"][0]
    Path(first["photo"]).write_text("a new one")
    found = fscil("sort", "--undo", str(moved["list"]), "--json")
    assert json.loads(found.out)["restored"] == 8
    assert Path(first["photo"]).read_text() == "a new one"
    assert (tmp_path / "moved" / first["to"]).exists()


def test_a_link_does_not_lead_out_of_the_folder(fscil: Fscil, model: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "class0").symlink_to(tmp_path / "elsewhere")
    refused = fscil("sort", model, photos / "class0", "--to", "out", "--yes")
    assert refused.code == 2
    assert "is in the way" in refused.err
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_move_that_was_killed_halfway_is_undone(photos: Path, tmp_path: Path) -> None:
    """The list is there before the first photo moves; a photo may be in both places, or in its old one alone."""
    paths = [tmp_path / path for path in sorted(photos.glob("class0/*"))]
    before = tree(tmp_path / "photos")
    placed = [Placed(str(path), f"a/{path.name}", "a", 1.0) for path in paths]
    made = write_list(placed, tmp_path / "out", move=True)
    carry_out(placed, made, move=True)
    for path in paths[3:]:
        os.link(tmp_path / "out" / "a" / path.name, path)  # in both places
    for path in paths[6:]:
        (tmp_path / "out" / "a" / path.name).unlink()  # not moved yet
    assert undo(made).left == ()
    assert tree(tmp_path / "photos") == before
    assert not (tmp_path / "out").exists()


def test_after_ctrl_c_it_says_how_to_take_back_what_was_done(
    fscil: Fscil, model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, move_file, moved = tree(photos), sorting.move_file, list[Path]()

    def interrupted(source: Path, target: Path) -> None:
        if len(moved) == 3:
            signal.raise_signal(signal.SIGINT)
        moved.append(target)
        move_file(source, target)

    monkeypatch.setattr(sorting, "move_file", interrupted)
    found = fscil("sort", model, photos / "class0", "--to", "out", "--yes", "--move")
    assert (found.code, found.out, len(moved)) == (130, "", 3)
    said, _, command = found.err.rstrip("\n").partition(" with: fscil ")
    assert said == "interrupted; take back what was done"
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert fscil(*command.split()).out == "took back 3 photos\n"
    assert tree(photos) == before


@pytest.mark.parametrize(
    "change",
    [
        {"to": "../photos/a.png"},
        {"to": "/etc/passwd"},
        {"to": "a/../../x"},
        {"to": "x"},
        {"photo": "relative.png"},
        {"photo": "/x\0"},
        {"to": 3},
    ],
)
def test_lists_that_lead_elsewhere_are_refused(
    fscil: Fscil, photos: Path, tmp_path: Path, change: dict[str, str]
) -> None:
    path = tmp_path / photos / "class0" / "0-0.png"
    made = write_list([Placed(str(path), "a/0-0.png", "a", 1.0)], tmp_path / "out", move=False)
    facts = json.loads(made.read_text())
    facts["photos"][0] |= change
    made.write_text(json.dumps(facts))
    before = tree(tmp_path)
    refused = fscil("sort", "--undo", made)
    assert refused.code == 2
    assert "is no list of photos" in refused.err
    assert tree(tmp_path) == before


def test_every_class_gets_a_folder_of_its_own() -> None:
    strange = [
        "", ".", "..", "...", "../x", "/etc", "a/b", "a\\b", "a:b", "con", "NUL.txt", "Unknown", "UNKNOWN", "unknown",
        "Rose", "rose", "ROSE", ".hidden", "trailing.", "trailing ", " x", "\n", "\x00", "\x1b[31m", "\u202eabc", "名",
        "x" * 500, "x" * 501, "名" * 200, "\ud800", "e\u0301", *string.punctuation,
    ]  # fmt: skip
    folders = safe_folders(strange)
    assert folders.keys() == {*strange}
    assert folders["unknown"] == "unknown"
    assert len({each.casefold() for each in folders.values()}) == len(folders)
    for folder in folders.values():
        assert folder not in ("", ".", "..")
        assert not set(folder) & set('<>:"/\\|?*\0\n\x1b')
        assert not folder.startswith(".")
        assert folder == folder.strip().rstrip(". ")
        assert len(folder.encode()) <= LONGEST + 20
    assert folders["a:b"] != folders["a/b"] != folders["a\\b"]
    assert safe_folders(["tulip", "rose"]) == {"unknown": "unknown", "tulip": "tulip", "rose": "rose"}
