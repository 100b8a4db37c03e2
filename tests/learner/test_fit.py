"""fit: trains on a folder, chooses by held-out photos and says so; the learner then saves, loads and learns more."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from fscil import Learner, UserError
from fscil.engine import Engine
from fscil.learner import choosing, fit, fitting, folder_check, heads, plan, tuning
from fscil.learner.fitting import fit_folder
from fscil.learner.heads import Head, Photos, learn
from fscil.learner.judging import divisions, judge_heads
from fscil.learner.witnesses import as_unseen
from learner_helpers import Digits

FURTHER = "digit 9"  # is taught after the others were fitted


@pytest.fixture(autouse=True)
def speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan depends on how busy this machine is."""
    monkeypatch.setattr(folder_check, "measure_speed", lambda model: plan.Speed(1e-3, 3e-3))


@pytest.fixture
def photos(digits: Digits, tmp_path: Path) -> Path:
    """Eight digits, twelve photos each."""
    return copied(digits, tmp_path / "photos", 8, 12)


def copied(digits: Digits, folder: Path, classes: int, photos: int) -> Path:
    for name in list(digits)[:classes]:
        (folder / name).mkdir(parents=True)
        for path in digits[name][:photos]:
            shutil.copy(path, folder / name)
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings of a few steps, and choices that need few photos."""
    monkeypatch.setattr(plan, "META_STEPS", 4)
    monkeypatch.setattr(plan, "LEAST_STEPS", 2)
    monkeypatch.setattr(plan, "EPOCHS", 1)
    monkeypatch.setattr(plan, "LEAST_PHOTOS", 10)
    monkeypatch.setattr(choosing, "LEAST_PHOTOS", 10)
    monkeypatch.setattr("fscil.episodes.blend_pool.POOL", 8)


@pytest.mark.usefixtures("quick")
def test_fit_chooses_saves_and_is_taught_more(photos: Path, digits: Digits, tmp_path: Path) -> None:
    out = tmp_path / "model"
    fitted = fit(photos, out, encoder="embedded", finetune=False)
    assert [choice.question for choice in fitted.choices][:2] == ["head", "calibrator"]
    assert fitted.accuracy is not None
    assert fitted.accuracy > 60
    assert "on 16 held-out photos: class means" in str(fitted)
    assert "a linear probe" in str(fitted)
    json.dumps(fitted.as_dict())

    assert "8 classes, 96 photos" in (out / "README.md").read_text()

    learner = Learner.load(out)
    assert list(learner.classes_) == list(digits)[:8]
    assert [photo.role for photo in learner.photos()] == ["witness"] * 16
    lesson = learner.teach(FURTHER, digits[FURTHER][:6])
    assert lesson.photos == 6
    assert FURTHER in learner.classes_
    assert learner.score(digits[FURTHER][6:], [FURTHER] * 6) > 0.5
    assert learner.score(digits["digit 0"], ["digit 0"] * 12) > 0.8
    before = fitted.learner.predict_proba(digits["digit 3"][:2])
    assert before.shape == (2, 9)  # it sees what was taught to its folder
    learner.hide_base()
    assert list(learner.classes_) == [FURTHER]


@pytest.mark.usefixtures("quick")
def test_what_fit_measured_cannot_be_undone(photos: Path, digits: Digits) -> None:
    learner = fit(photos, encoder="embedded").learner
    measured = learner.unknown
    learner.teach(FURTHER, digits[FURTHER][:5])
    assert learner.undo().verb == "teach"
    with pytest.raises(UserError, match="nothing to undo"):
        learner.undo()
    assert learner.unknown == measured


@pytest.mark.usefixtures("quick")
def test_class_means_where_limit_hurts(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = tuning.limit_settings

    def harmful(*args: object) -> object:
        from dataclasses import replace

        return replace(usual(*args), calibrator_lr=5.0, rows_lr=5.0)  # type: ignore[arg-type]

    monkeypatch.setattr(tuning, "limit_settings", harmful)
    fitted = fit(photos, encoder="embedded", finetune=False)
    choice = next(each for each in fitted.choices if each.question == "calibrator")
    assert choice.chosen != "LIMIT"
    assert choice.scores["LIMIT"] < choice.scores[choice.chosen]
    assert "class means" in choice.sentence


@pytest.mark.usefixtures("quick")
def test_fine_tuning_and_limit_if_they_win(
    photos: Path, digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "SURE", -1e9)  # whatever is tried wins
    fitted = fit(photos, tmp_path / "model", encoder="embedded", finetune=True)
    assert {choice.question: choice.chosen for choice in fitted.choices} | {"head": "", "margin": ""} == {
        "head": "", "encoder": "fine-tuned", "calibrator": "LIMIT", "margin": "",
    }  # fmt: skip
    learner = Learner.load(tmp_path / "model")
    assert learner._knowledge.model.calibrator_name == "transformer"
    learner.teach(FURTHER, digits[FURTHER][:5])
    assert len(learner.predict(digits[FURTHER][5:])) == 7


@pytest.mark.usefixtures("quick")
def test_what_is_interrupted_leaves_nothing_and_goes_on(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSCIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fitting, "Engine", partial(Engine, checkpoint_seconds=0))
    learner, out, save, saved = Learner("embedded"), tmp_path / "model", Engine.save_checkpoint, list[str]()

    def save_and_stop(engine: Engine, name: str, tensors: dict[str, torch.Tensor], about: dict[str, Any]) -> None:
        save(engine, name, tensors, about)
        saved.append(name)
        if len(saved) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "save_checkpoint", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        fit_folder(learner, photos, finetune=True)
    assert list(learner.classes_) == []
    resumed = fit(photos, out, encoder="embedded", finetune=True)
    assert saved.count("stage-trial-fine-tune") == 2  # its two epochs, neither of them twice
    assert not any((tmp_path / "cache" / "fit").iterdir())

    monkeypatch.setenv("FSCIL_CACHE", "off")
    whole = fit(photos, encoder="embedded", finetune=True)
    assert whole.choices == resumed.choices
    for name, tensor in whole.learner._knowledge.model.state_dict().items():
        assert torch.equal(tensor, resumed.learner._knowledge.model.state_dict()[name]), name


@pytest.mark.parametrize(("classes", "n"), [(2, 2), (2, 12), (3, 3), (5, 2)])
def test_small_folders_get_class_means(digits: Digits, tmp_path: Path, classes: int, n: int) -> None:
    folder = copied(digits, tmp_path / "photos", classes, n)
    learner = Learner("embedded").fit(folder)
    assert len(learner.classes_) == classes
    model = learner._knowledge.model
    assert model.calibrator_name == "cosine"
    assert model.base_margin == 0
    assert learner.score(digits["digit 0"], ["digit 0"] * 12) > 0.5
    learner.teach(FURTHER, digits[FURTHER][:2])
    assert len(learner.classes_) == classes + 1


def test_all_photos_are_used_in_the_end(digits: Digits, tmp_path: Path) -> None:
    folder = copied(digits, tmp_path / "photos", 2, 8)
    learner = Learner("embedded").fit(folder)
    taught = Learner("embedded")
    for name in list(digits)[:2]:
        taught.teach(name, digits[name][:8])
    torch.testing.assert_close(learner._knowledge.model.rows, taught._knowledge.model.rows, rtol=1e-3, atol=1e-3)


def test_bad_photos_are_refused_or_left_out(digits: Digits, tmp_path: Path) -> None:
    folder = copied(digits, tmp_path / "photos", 2, 4)
    (folder / "digit 0" / "bad.jpg").write_bytes(b"no photo")
    with pytest.raises(UserError, match=r"digit 0/bad.jpg is not an image.*skip_bad"):
        fit(folder, tmp_path / "model", encoder="embedded")
    assert not (tmp_path / "model").exists()
    fitted = fit(folder, tmp_path / "model", encoder="embedded", skip_bad=True)
    assert len(fitted.left_out) == 1
    assert "bad.jpg" in str(fitted)
    with pytest.raises(UserError, match="exists already"):
        fit(folder, tmp_path / "model", encoder="embedded", skip_bad=True)
    with pytest.raises(UserError, match="two classes are needed"):
        fit(tmp_path / "photos" / "digit 0", encoder="embedded", skip_bad=True)


def test_photos_of_test_are_measured_and_never_learned(digits: Digits, tmp_path: Path) -> None:
    copied(digits, tmp_path / "photos" / "train", 3, 6)
    for name in list(digits)[:3]:
        (tmp_path / "photos" / "test" / name).mkdir(parents=True)
        for path in digits[name][6:]:
            shutil.copy(path, tmp_path / "photos" / "test" / name)
    fitted = fit(tmp_path / "photos", encoder="embedded")
    assert fitted.plan.photos == 18
    assert fitted.test_accuracy is not None
    assert fitted.test_accuracy > 50
    right = [fitted.learner.score(digits[name][6:], [name] * 6) for name in list(digits)[:3]]
    assert fitted.test_accuracy == pytest.approx(100 * sum(right) / 3)


def blobs(classes: int, n: int, d: int, noise: float, seed: int) -> Photos:
    """Positive features around a point for each class."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(classes, d, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(classes).repeat_interleave(n)
    features = (centres[labels] + noise * torch.randn(classes * n, d, generator=generator)).clamp(min=0.01)
    return Photos(features.sqrt(), torch.nn.functional.normalize(features, dim=1), labels)


@pytest.mark.parametrize("head", [Head(), Head(1.0), Head(3.0, 0.3)])
def test_witnesses_answer_as_if_they_had_not_been_learned(head: Head) -> None:
    kept, held = blobs(6, 10, 40, 0.5, seed=1), blobs(6, 4, 40, 0.5, seed=2)
    everything = Photos(
        *(torch.cat([getattr(kept, n), getattr(held, n)]) for n in ("embeddings", "features", "labels"))
    )
    unseen, final = learn([head], kept, 6)[0], learn([head], everything, 6)[0]
    asked = as_unseen(final, held, unseen, held)
    wanted = unseen.logits(held)
    torch.testing.assert_close(final.calibrator.predict(final.rows, asked), wanted, rtol=1e-3, atol=1e-2)
    if head.whiten:  # without it the model finds photos that it has learned more like their class than they are
        own = torch.arange(len(held))
        assert (final.logits(held)[own, held.labels] > wanted[own, held.labels]).float().mean() > 0.9


def test_whitening_is_chosen_where_it_helps() -> None:
    """Photos of a class differ most in directions that say nothing about it."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(8).repeat_interleave(30)
    loud = 4 * torch.randn(240, 10, generator=generator)
    quiet = torch.eye(8)[labels] + 0.3 * torch.randn(240, 8, generator=generator)
    embeddings = torch.cat([loud, quiet], 1) + 5
    photos = Photos(embeddings, torch.nn.functional.normalize(embeddings, dim=1), labels)
    held = torch.arange(240) % 5 == 0
    verdicts = judge_heads([Head(), Head(0.3)], photos.where(~held), photos.where(held), 8)
    assert verdicts[Head(0.3)].score > verdicts[Head()].score + 10
    gain, error = verdicts[Head(0.3)].gain_over(verdicts[Head()])
    assert gain == pytest.approx(verdicts[Head(0.3)].score - verdicts[Head()].score)
    assert gain > 2 * error > 0


def test_divisions_hold_out_a_third() -> None:
    assert divisions(2) == []
    for division in divisions(20):
        assert len(division.new) == 6
        assert sorted(division.base + division.new) == list(range(20))


def test_a_linear_probe_of_two_classes_has_two_rows() -> None:
    assert heads.linear_probe(blobs(2, 5, 8, 0.1, seed=1), 2).shape == (2, 8)
