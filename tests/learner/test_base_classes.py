"""Photos that are taught to a class of the training: its row turns towards them, and back when they go."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from fscil import Learner
from fscil.learner import Taught
from fscil.learner.leave_one_out import held_out
from fscil.learner.rows import TRAINING
from fscil.learner.store import TAUGHT

Images = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(params=["transformer", "paired"])
def learner(request: pytest.FixtureRequest, runs: dict[str, Path], tmp_path: Path) -> Learner:
    """Of a run that knows ten digits, of which 0 to 3 were its base classes."""
    return Learner.load(shutil.copytree(runs[request.param], tmp_path / "run"))


def all_rows(learner: Learner) -> torch.Tensor:
    return learner._knowledge.model.rows.detach().clone()


def test_the_row_is_the_mean_of_directions_whatever_the_order(learner: Learner, digit_images: Images) -> None:
    images, labels = digit_images
    before, threes = all_rows(learner), images[labels == 3][:5]
    lesson = learner.teach("3", threes[:2])
    assert (lesson.base, lesson.new, lesson.photos, lesson.classes) == (True, 2, 2, 10)
    assert str(lesson).startswith("3 has 2 photos now beside those of its training, 2 of them new.")
    learner.teach("3", threes[2:])
    after, d = all_rows(learner), learner._knowledge.model.encoder.dim
    vectors = learner._knowledge.store.vectors()[:, :d]
    row, mean = before[3, :d].double().numpy(), vectors.mean(0)
    towards = TRAINING * row / np.linalg.norm(row) + 5 * mean / np.linalg.norm(mean)
    assert after[3, :d].numpy() == pytest.approx(np.linalg.norm(row) * towards / np.linalg.norm(towards), abs=1e-5)
    assert torch.equal(after[3, d:], before[3, d:])
    others = [i for i in range(10) if i != 3]
    assert torch.equal(after[others], before[others])
    for _ in range(2):
        learner.undo()
    assert torch.equal(all_rows(learner), before)
    learner.teach("3", threes.flip(0))
    assert torch.equal(all_rows(learner), after)


def test_what_was_taught_to_base_classes_is_saved(learner: Learner, digit_images: Images, tmp_path: Path) -> None:
    images, labels = digit_images
    learner.teach("3", images[labels == 3][:5])
    expected = learner.predict_proba(images[:20])
    learner.save(tmp_path / "copy")
    for folder in (learner.folder, tmp_path / "copy"):
        assert folder is not None
        assert Learner.load(folder).predict_proba(images[:20]) == pytest.approx(expected, abs=1e-6)
        three = next(each for each in Taught(folder).classes() if each.name == "3")
        assert (three.photos, three.base, len(Taught(folder).classes())) == (5, True, 10)


def test_a_learner_that_was_not_saved_keeps_what_training_gave(learner: Learner, digit_images: Images) -> None:
    """Otherwise the photos would count twice when it is loaded."""
    images, labels = digit_images
    knowledge = learner._knowledge
    unsaved = Learner()
    unsaved._begin(knowledge.model, knowledge.base)
    unsaved.teach("3", images[labels == 3][:5])
    expected = unsaved.predict_proba(images[:20])
    assert learner.folder is not None
    unsaved.save(learner.folder.parent / "saved")
    assert Learner.load(learner.folder.parent / "saved").predict_proba(images[:20]) == pytest.approx(expected, abs=1e-6)


def test_leaving_out_is_exact_for_base_classes(learner: Learner, digit_images: Images) -> None:
    images, labels = digit_images
    learner.teach("3", images[labels == 3][:3])
    learner.teach("4", images[labels == 4][:1])
    knowledge = learner._knowledge
    places = knowledge.store.with_role(TAUGHT)
    held = held_out(knowledge.store, knowledge.rows, places, knowledge.columns().visible)
    assert held.known.all()
    for i in (0, 3):
        query = torch.from_numpy(knowledge.store.vectors(places[i : i + 1]).astype(np.float32))
        learner.forget(photo=images[labels == (3 if i == 0 else 4)][0])
        logits, columns = knowledge.logits(query)
        learner.undo()
        expected = dict(zip(columns.answers, logits[0], strict=True))
        assert held.logits[i] == pytest.approx([expected[str(digit)] for digit in range(10)], abs=2e-3)


def test_corrections_of_base_classes(learner: Learner, digit_images: Images) -> None:
    images, labels = digit_images
    before = all_rows(learner)
    learner.teach("another", images[labels == 3][:4])
    learner.move(images[labels == 3][0], "3")
    assert [each.name for each in learner.photos()].count("3") == 1
    learner.rename("another", "3")  # becomes part of it
    assert (len(learner.classes_), len(learner.photos("3"))) == (10, 4)
    turned = all_rows(learner)
    learner.rename("3", "three")
    assert ("3" in learner.classes_, len(learner.photos("three"))) == (False, 4)
    assert torch.equal(all_rows(learner), turned)
    learner.undo()
    with pytest.raises(Exception, match="'5' is a class already"):
        learner.rename("3", "5")
    learner.forget("3")
    assert ("3" in learner.classes_, learner.photos("3")) == (False, [])
    learner.undo()
    assert torch.equal(all_rows(learner), turned)
    for _ in range(3):
        learner.undo()
    assert torch.equal(all_rows(learner), before)


def test_a_hidden_class_that_is_taught_is_answered(learner: Learner, digit_images: Images) -> None:
    images, labels = digit_images
    learner.hide_base()
    learner.teach("3", images[labels == 3][:5])
    learner.teach("mine", images[labels == 4][:5])
    assert list(learner.classes_) == ["3", "mine"]
    assert learner.folder is not None
    assert [each.name for each in Taught(learner.folder).classes() if not each.hidden] == ["3", "mine"]
