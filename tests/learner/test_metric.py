"""The metric of a model that was only taught; test_measures.py has it again as plain loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fscil import Learner
from learner_helpers import Digits, rows_of


def metric(learner: Learner) -> torch.Tensor | None:
    found = learner._knowledge.model.calibrator.metric
    return None if found is None else found.clone()


@pytest.mark.slow
def test_digits_are_recognised_better_than_by_class_means_alone(
    learner: Learner, digit_images: tuple[torch.Tensor, torch.Tensor]
) -> None:
    images, labels = digit_images
    right, by_means = [], []
    for draw in range(4):
        learner.set_params(encoder="embedded")  # starts anew
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(draw))
        taught = torch.cat([order[labels[order] == digit][:6] for digit in range(10)])
        learner.fit(images[taught], [str(int(label)) for label in labels[taught]])
        queries = learner._knowledge.model.embed_here(images)
        logits, columns = learner._knowledge.logits(queries)
        rows = torch.stack([rows_of(learner)[name] for name in columns.answers])
        means = F.normalize(queries, dim=1) @ F.normalize(rows, dim=1).T
        right.append((logits.argmax(1) == labels.numpy()).mean())
        by_means.append((means.argmax(1) == labels).float().mean())
    assert np.mean(right) > np.mean(by_means) + 0.02


def test_without_photos_that_differ_there_is_none(learner: Learner, digits: Digits) -> None:
    for name in list(digits)[:3]:
        learner.teach(name, digits[name][0])
    assert metric(learner) is None
    answer = learner.predict(digits["digit 0"][5], rivals=2)[0]
    row, query = rows_of(learner)[answer.best], learner._knowledge.samples([digits["digit 0"][5]])[0][0].embedding
    assert answer.score == pytest.approx(16 * float(F.cosine_similarity(row, torch.from_numpy(query), dim=0)), rel=1e-4)


def test_it_is_taken_back_and_loaded_with_what_was_taught(learner: Learner, digits: Digits, tmp_path: Path) -> None:
    learner.teach("one", digits["digit 1"][:4])
    learner.teach("two", digits["digit 2"][:3])
    before = metric(learner)
    learner.teach("three", digits["digit 3"][:5])
    after = metric(learner)
    assert before is not None
    assert after is not None
    assert not torch.equal(before, after)
    learner.move(digits["digit 3"][0], "two")
    learner.undo()
    assert torch.equal(metric(learner), after)
    learner.save(tmp_path / "model")
    assert torch.equal(metric(Learner.load(tmp_path / "model")), after)
    learner.undo()
    assert torch.equal(metric(learner), before)


def test_photos_that_are_the_same_to_the_encoder_make_none(learner: Learner) -> None:
    for value in (10, 200):
        plain = torch.full((3, 3, 32, 32), value, dtype=torch.uint8)
        plain[1, 0, 0, 0] += 1  # another file, but nearly the same embedding
        learner.teach(f"grey {value}", plain)
    assert learner.predict(torch.full((3, 32, 32), 10, dtype=torch.uint8))[0].best == "grey 10"
    assert np.isfinite(learner.predict_proba(torch.full((3, 32, 32), 90, dtype=torch.uint8))).all()
