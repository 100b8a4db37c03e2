"""The learner's verbs on the command line: what they print, and what they leave in the model folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_call import Fscil
from cli_process import fscil_process, popen
from fscil import Learner
from fscil.learner import Taught

PhotoFolder = Callable[..., Path]


# -- teach -----------------------------------------------------------------------------------------------------------
def test_the_class_is_named_after_the_folder_and_the_model_is_made(fscil: Fscil, photos: Path) -> None:
    found = fscil("teach", "new", *sorted(photos.glob("class0/*"))[:3], "--encoder", "embedded")
    assert found.code == 0, found.err
    first, *sentences = found.out.splitlines()
    assert first == (
        "made new and taught class0 (3 new photos), named after its folder; take it back with: fscil undo new"
    )
    assert sentences[0] == "class0 has 3 photos now, 3 of them new."
    assert [(each.name, each.photos) for each in Taught("new").classes()] == [("class0", 3)]
    again = json.loads(fscil("teach", "new", photos / "class0", photos / "class1", "--json").out)
    assert (again["model"], again["made"]) == ("new", False)
    assert [(each["name"], each["new"]) for each in again["lessons"]] == [("class0", 6), ("class1", 9)]
    assert "| class1 | 9 |" in Path("new/README.md").read_text()


def test_folders_in_a_folder_are_classes_and_one_step(fscil: Fscil, photos: Path) -> None:
    found = fscil("teach", "new", photos, "--encoder", "embedded")
    assert found.out.splitlines()[0].startswith("made new and taught class0 (9 new photos), class1 (9 new photos)")
    assert len(Taught("new").classes()) == 6
    assert fscil("undo", "new").code == 0
    assert Taught("new").classes() == []


def test_a_name_is_given_or_the_photos_are_counter_examples(fscil: Fscil, model: Path, photos: Path) -> None:
    found = fscil("teach", model, "--name", "red rose", photos / "class4", photos / "class5" / "5-1.png")
    assert found.out.splitlines()[0] == "taught red rose (10 new photos); take it back with: fscil undo flowers"
    found = fscil("teach", model, "--unknown", photos / "class5")
    assert found.out == "taught 9 new photos of no class; take it back with: fscil undo flowers\n"
    assert json.loads(fscil("teach", model, "--unknown", photos / "class5", "--json").out)["new"] == 0
    told = fscil("classes", model).out.splitlines()
    assert told[-2:] == ["red rose  10 photos", "9 counter-examples of none of them"]
    answers = json.loads(fscil("predict", model, photos / "class5" / "5-2.png", "--json").out)
    assert answers[0]["name"] == "unknown"
    assert "counter-example" in answers[0]["reason"]


def test_unreadable_photos_stop_a_lesson_unless_it_is_told_to_go_on(fscil: Fscil, model: Path, photos: Path) -> None:
    (photos / "class4" / "4-3.png").write_text("no image")
    before = Path("flowers/classes.safetensors").read_bytes()
    refused = fscil("teach", model, photos / "class4", photos / "class5")
    assert refused.code == 2
    assert "4-3.png cannot be read as an image" in refused.err
    assert Path("flowers/classes.safetensors").read_bytes() == before
    found = json.loads(fscil("teach", model, photos / "class4", "--skip-unreadable", "--json").out)["lessons"][0]
    assert (found["new"], len(found["unreadable"])) == (8, 1)


def test_a_lesson_without_a_new_photo_does_not_offer_to_undo_an_earlier_one(
    fscil: Fscil, model: Path, photos: Path
) -> None:
    known = [photos / "class0" / each.file for each in Taught(model).photos("class0")]
    for _ in range(2):
        found = fscil("teach", model, *known)
        first, *sentences = found.out.splitlines()
        assert (found.code, first) == (0, "nothing new: these photos had been taught already")
        assert any("did not count again" in sentence for sentence in sentences)
        assert "undo" not in found.out
    assert fscil("teach", model, "--unknown", photos / "class5").code == 0
    assert fscil("teach", model, "--unknown", photos / "class5").out == f"{first}\n"


def test_what_was_left_out_is_named_with_its_reason(fscil: Fscil, model: Path, photos: Path) -> None:
    for i in (3, 4):
        (photos / "class4" / f"4-{i}.png").write_text("no image")
    told = fscil("teach", model, photos / "class4", "--skip-unreadable").out.splitlines()[-1]
    reasons = [f"{photos}/class4/4-{i}.png cannot be read as an image" for i in (3, 4)]
    assert told == f"2 images left out: {'; '.join(reasons)}."


# -- corrections -----------------------------------------------------------------------------------------------------
def test_corrections_say_what_they_did_and_are_undone(fscil: Fscil, model: Path, photos: Path) -> None:
    calls = {
        "forgot class0": ("forget", model, "class0"),
        "forgot class1: 1-2.png": ("forget", model, "--photo", "1-2.png"),
        "renamed class2 to tulip": ("rename", model, "class2", "tulip"),
        "moved class3: 3-1.png to tulip": ("move", model, photos / "class3" / "3-1.png", "tulip", "--from", "class3"),
        "base classes hidden: yes": ("hide-base", model),
        "base classes hidden: no": ("show-base", model),
    }
    before = Taught(model).photos()
    for said, call in calls.items():
        found = fscil(*call)
        assert found.out == f"{said}; take it back with: fscil undo flowers\n", found.err
    assert [(each.name, each.photos) for each in Taught(model).classes()] == [
        ("class1", 5), ("tulip", 7), ("class3", 5),
    ]  # fmt: skip
    steps = fscil("history", model).out.splitlines()
    assert [line.partition(" UTC  ")[2].split()[0] for line in steps] == (
        ["teach"] * 4 + ["forget", "forget", "rename", "move", "hide_base", "hide_base"]
    )
    for said in reversed(calls):
        undone = json.loads(fscil("undo", model, "--json").out)["undone"]
        assert undone["what"] in said
    assert sorted(map(str, Taught(model).photos())) == sorted(map(str, before))
    assert json.loads(fscil("forget", model, "class3", "--json").out)["done"]["what"] == "class3"
    assert json.loads(fscil("history", model, "--json").out)[-1]["verb"] == "forget"


def test_a_class_lists_its_photos(fscil: Fscil, model: Path) -> None:
    lines = fscil("classes", model, "class1").out.splitlines()
    assert [line.split("  ")[1] for line in lines] == [f"1-{i}.png" for i in range(6)]
    listed = json.loads(fscil("classes", model, "class1", "--json").out)
    assert [each["sha256"][:8] for each in listed] == [line.split("  ")[0] for line in lines]


def test_measures_are_the_learners(fscil: Fscil, model: Path) -> None:
    found = json.loads(fscil("classes", model, "--measure", "--json").out)
    learner = Learner.load(model)
    assert found["unknown"] == learner.unknown.as_dict()
    assert found["confidence"] == learner.confidence.as_dict()
    scores = {each.name: (each.photos, each.right) for each in learner.left_out()[0]}
    assert {each["name"]: (each["tried"], each["recognised"]) for each in found["classes"]} == scores
    told = fscil("classes", model, "--measure").out
    assert "recognised when left out" in told
    assert "unknown: photos below" in told
    assert "confidence: temperature" in told


# -- evaluate --------------------------------------------------------------------------------------------------------
def test_evaluation_counts_answers_as_predict_gives_them(fscil: Fscil, model: Path, photos: Path) -> None:
    (photos / "class0" / "bad.png").write_text("no image")
    assert fscil("evaluate", model, photos).code == 2
    found = json.loads(fscil("evaluate", model, photos, "--skip-unreadable", "--json").out)
    paths = sorted(photos.glob("*/*-*.png"))
    answers = json.loads(fscil("predict", model, *paths, "--json").out)
    wanted = {f"class{i}": f"class{i}" if i < 4 else "unknown" for i in range(6)}
    right = [each["name"] == wanted[path.parent.name] for path, each in zip(paths, answers, strict=True)]
    assert (found["photos"], found["right"]) == (54, sum(right))
    assert found["accuracy"] == sum(right) / 54
    through = [
        each["name"] != "unknown" for path, each in zip(paths, answers, strict=True) if path.parent.name >= "class4"
    ]
    assert found["let_through"] == sum(through) / 18
    assert [(each["name"], each["known"]) for each in found["classes"]] == [(f"class{i}", i < 4) for i in range(6)]
    assert sum(each["photos"] for each in found["mistakes"]) == 54 - sum(right)
    assert len(found["unreadable"]) == 1
    told = fscil("evaluate", model, photos, "--skip-unreadable").out.splitlines()
    assert told[0] == f"{sum(right)} of 54 photos are right ({100 * sum(right) / 54:.1f} %)"


# -- runs ------------------------------------------------------------------------------------------------------------
def test_a_runs_model_is_taught_and_hides_its_base_classes(
    fscil: Fscil, tiny_dataset: str, photo_folder: PhotoFolder
) -> None:
    assert fscil("run", "decoupled-cosine", tiny_dataset, "--out", "run").code == 0
    folder = photo_folder(classes=2, images=3)
    assert fscil("teach", "run", folder).code == 0
    assert [each["base"] for each in json.loads(fscil("classes", "run", "--json").out)["classes"]] == [True] * 7 + [
        False
    ] * 2
    assert "| class0 | 3 |" in Path("run/model/README.md").read_text()
    assert fscil("hide-base", "run").code == 0
    answers = json.loads(fscil("predict", "run", folder / "class0", "--json", "--no-unknown").out)
    assert {one["name"] for each in answers for one in each["predictions"]} == {"class0", "class1"}


# -- processes -------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_two_processes_that_make_one_model_lose_nothing(photos: Path, tmp_path: Path) -> None:
    started = [
        popen("teach", "new", photos / f"class{i}", "--encoder", "embedded", "--json", cwd=tmp_path) for i in range(2)
    ]
    ended = [(process.communicate(), process.returncode) for process in started]
    said = [json.loads(out)["lessons"][0]["name"] for (out, _), code in ended if code == 0]
    assert {each.name for each in Taught(tmp_path / "new").classes()} == set(said) != set()
    for (_, err), code in ended:
        assert code in (0, 2)
        assert code == 0 or err.count("\n") == 1


def test_a_teaching_process_exits_well(model: Path, photos: Path, tmp_path: Path) -> None:
    code, out, err = fscil_process("teach", model, photos / "class4", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert out.startswith("taught class4 (9 new photos), named after its folder")
