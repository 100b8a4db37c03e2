from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil.answers import Answers
from fscil.errors import UserError
from fscil.margins import predictions_at

BASE, NEW = 5, 4


def answers_to(raw: torch.Tensor, margin: float) -> Answers:
    """Two sessions, with the margin subtracted as a model does it."""
    lowered = raw.clone().sub_(margin * (torch.arange(BASE + NEW) < BASE))
    answers, everything = Answers.none_yet(2, len(raw)), torch.ones(len(raw), dtype=torch.bool)
    base_images = torch.arange(len(raw)) % 2 == 0
    answers.add(0, base_images, lowered[base_images, :BASE], BASE, margin)
    answers.add(1, everything, lowered, BASE, margin)
    return answers


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.1, 0.4, 1.0, -0.7, 3.3333333]),
    st.sampled_from([1e-6, 1.0, 300.0]),
)
@settings(max_examples=60, deadline=None)
def test_the_runs_own_margin_gives_its_predictions_however_close_the_scores(
    seed: int, margin: float, scale: float
) -> None:
    """Most images lie on the margin up to a few roundings, where adding it again may land on the other side."""
    generator = torch.Generator().manual_seed(seed)
    raw = scale * torch.randn(400, BASE + NEW, generator=generator)
    best = raw[:, BASE:].amax(1)
    for _ in range(3):
        near = torch.rand(400, generator=generator) < 0.6
        raw[near, 1] = (best + margin)[near].nextafter(raw[near, 2])
    answers, labels = answers_to(raw, margin), BASE * (torch.arange(400) % 2)
    scores = answers.scores(labels, [BASE, NEW])
    expected = raw.clone().sub_(margin * (torch.arange(BASE + NEW) < BASE)).argmax(1)
    assert torch.equal(answers.predictions[1], expected)
    assert (predictions_at(scores, margin) == answers.predictions.numpy()).all()
    size = raw.abs().max() + abs(margin)
    assert torch.allclose(answers.best_base_score[1], raw[:, :BASE].amax(1), rtol=0, atol=float(3e-7 * size))


def test_what_is_not_there_is_minus_one_and_minus_infinity() -> None:
    answers = answers_to(torch.randn(6, BASE + NEW), 0.5)
    unseen = torch.tensor([False, True] * 3)
    for name, rows in answers.tensors().items():
        missing = -torch.inf if name.endswith("score") else -1
        assert (rows[0, unseen] == missing).all()
        assert (rows[1] != missing).all()
        assert ((rows[0, ~unseen] == missing) == ("new" in name)).all()


def test_scores_that_are_not_numbers_are_refused() -> None:
    raw = torch.randn(6, BASE + NEW)
    raw[3, 2] = torch.nan
    with pytest.raises(UserError, match="training has diverged"):
        answers_to(raw, 0.5).scores(BASE * (torch.arange(6) % 2), [BASE, NEW])
