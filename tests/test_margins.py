from __future__ import annotations

import math
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from fscil import margins, metrics
from fscil.errors import UserError
from fscil.margins import Scores, new_at_base_accuracy, scores_from

Stream = tuple[np.ndarray, list[np.ndarray], list[int]]  # labels, logits of every session, classes per session


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Logits are whole numbers or quarters of a small range, so that many of them are equal."""
    classes_per_session = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    seen = np.cumsum(classes_per_session)
    labels = rng.permutation(np.concatenate([np.arange(seen[-1]), rng.integers(0, seen[-1], draw(st.integers(0, 12)))]))
    spread, unit = draw(st.sampled_from([(1, 1.0), (4, 1.0), (40, 0.25)]))
    return labels, [rng.integers(-spread, spread, (len(labels), n)) * unit for n in seen], classes_per_session


def best(labels: np.ndarray, logits: list[np.ndarray], classes_per_session: list[int]) -> Scores:
    """The best base and new classes and scores that a run records, one image after another."""
    base, shape = classes_per_session[0], (len(logits), len(labels))
    classes, scores = np.full((2, *shape), -1), np.full((2, *shape), -np.inf)
    for i, seen in enumerate(np.cumsum(classes_per_session)):
        for image in np.flatnonzero(labels < seen):
            row = logits[i][image].tolist()
            for side, part in enumerate((row[:base], row[base:])):
                if part:
                    scores[side, i, image] = max(part)
                    classes[side, i, image] = side * base + part.index(max(part))
    return scores_from(labels, *classes, *scores, classes_per_session)


def argmax_at(stream: Stream, margin: float) -> np.ndarray:
    labels, logits, classes_per_session = stream
    predictions = np.full((len(logits), len(labels)), -1)
    for i, seen in enumerate(np.cumsum(classes_per_session)):
        lowered = logits[i].copy()
        lowered[:, : classes_per_session[0]] -= margin
        predictions[i, labels < seen] = lowered.argmax(1)[labels < seen]
    return predictions


def margins_around(stream: Stream) -> list[float]:
    """Every margin at which some image changes sides, one between each two of them, and one beyond either end."""
    _, logits, classes_per_session = stream
    base = classes_per_session[0]
    turns = sorted({float(a - b) for row in logits[-1] for a in row[:base] for b in row[base:]})
    between = [(a + b) / 2 for a, b in pairwise(turns)]
    return sorted([*turns, *between, turns[0] - 1, turns[-1] + 1])


@pytest.mark.slow
@given(streams())
@settings(max_examples=150, deadline=None)
def test_everything_agrees_with_argmax_at_every_margin(stream: Stream) -> None:
    labels, _, classes_per_session = stream
    scores, base = best(*stream), labels < classes_per_session[0]
    tried = margins_around(stream)
    found = []
    for margin in tried:
        predictions = argmax_at(stream, margin)
        assert (margins.predictions_at(scores, margin) == predictions).all()
        headline = metrics.headline(labels, predictions, classes_per_session)
        assert margins.headline_at(scores, margin) == headline
        found.append(headline)
    measured = margins.measures(scores, margin=0.5)
    x, y = np.array([h["base"] for h in found]), np.array([h["new"] for h in found])
    assert measured["area"] == pytest.approx(-np.trapezoid(y, x) / 100)
    assert (measured["base_among_base"], measured["new_among_new"]) == pytest.approx((x[0], y[-1]))
    assert (x[-1], y[0]) == (0, 0)
    assert measured["best_harmonic_mean"] == pytest.approx(max(h["harmonic_mean"] or 0 for h in found))
    assert measured["best_last"] == pytest.approx(max(h["last"] for h in found))
    assert measured["margin_zero"] == metrics.headline(labels, argmax_at(stream, 0.0), classes_per_session)
    at_half = argmax_at(stream, 0.5)[-1]
    assert measured["base_to_new"] == pytest.approx(100 * (at_half >= classes_per_session[0])[base].mean())
    assert measured["new_to_base"] == pytest.approx(100 * (at_half < classes_per_session[0])[~base].mean())


@given(streams())
@settings(max_examples=50, deadline=None)
def test_the_area_is_the_share_of_pairs_that_a_margin_can_get_right(stream: Stream) -> None:
    """A base and a new image are both right at some margin if each is right on its own side, in this order."""
    scores = best(*stream)
    turns = scores.best_base_score[-1] - scores.best_new_score[-1]
    base = np.flatnonzero(scores.labels < scores.classes_per_session[0])
    new = np.flatnonzero(scores.labels >= scores.classes_per_session[0])
    right = np.where(scores.labels < scores.classes_per_session[0], scores.best_base_class, scores.best_new_class)[-1]
    right = right == scores.labels
    pairs = [right[a] * right[b] * (1 + np.sign(turns[a] - turns[b])) / 2 for a in base for b in new]
    assert margins.measures(scores, 0.0)["area"] == pytest.approx(100 * np.mean(pairs))


@given(streams())
@settings(max_examples=50, deadline=None)
def test_points_lie_on_the_curve_from_one_end_to_the_other(stream: Stream) -> None:
    scores = best(*stream)
    measured = margins.measures(scores, 0.0)
    curve = measured["curve"]
    assert curve[0][1:] == pytest.approx([measured["base_among_base"], 0], abs=1e-6)
    assert curve[-1][1:] == pytest.approx([0, measured["new_among_new"]], abs=1e-6)
    for margin, base, new in curve[:-1]:
        headline = margins.headline_at(scores, margin)
        assert (headline["base"], headline["new"]) == pytest.approx((base, new), abs=1e-6)


# Two base classes and two new ones; images of class 0, 0, 1, 2, 3, and how much further each is from turning.
LABELS = [0, 0, 1, 2, 3]
BASE = [[0, 0, 1, -1, -1], [0, 1, 1, 0, 1]]
NEW = [[-1] * 5, [2, 3, 2, 2, 2]]
NONE = -math.inf
BASE_SCORE = [[1.0, 1.0, 1.0, NONE, NONE], [3.0, 2.0, 1.0, 2.0, 0.0]]
NEW_SCORE = [[NONE] * 5, [0.0, 0.0, 0.5, 0.0, 4.0]]
SIZES = [2, 2]


def example() -> Scores:
    return scores_from(LABELS, BASE, NEW, BASE_SCORE, NEW_SCORE, SIZES)


def test_a_small_curve_by_hand() -> None:
    """Turns: 3 and .5 for the two right base images, 2 for the wrong one, 2 for the right new image, -4 for the other.

    Base is 2/3 up to margin .5, then 1/3 up to 3; new is 0 up to margin 2, then 1/2.
    """
    measured = margins.measures(example(), margin=2.5)
    third, half = 100 / 3, 50
    assert measured["area"] == pytest.approx(third * half / 100)
    assert (measured["base_among_base"], measured["new_among_new"]) == pytest.approx((2 * third, half))
    assert measured["best_harmonic_mean"] == pytest.approx(40)
    assert measured["best_last"] == pytest.approx(40)
    assert (measured["base_to_new"], measured["new_to_base"]) == pytest.approx((2 * third, 0))
    assert measured["margin_zero"]["accuracy"] == pytest.approx([100, 40])
    assert margins.headline_at(example(), 2.5)["accuracy"] == pytest.approx([100, 40])
    corners = [[-4, 66.666667, 0], [2, 33.333333, 0], [3, 33.333333, 50], [3, 0, 50]]
    assert measured["curve"] == corners  # the last margin is only just above 3


def test_an_image_on_the_margin_is_given_its_base_class() -> None:
    assert margins.predictions_at(example(), 0.5)[-1].tolist() == [0, 1, 1, 0, 2]
    assert margins.predictions_at(example(), 0.5000001)[-1].tolist() == [0, 1, 2, 0, 2]


def test_equal_scores_are_one_slanted_step() -> None:
    """All images turn at the same margin, so that base and new accuracy change together."""
    labels, zeros = [0, 1], [[0.0, NONE], [0.0, 0.0]]
    scores = scores_from(labels, [[0, -1], [0, 0]], [[-1, -1], [1, 1]], zeros, [[NONE, NONE], [0.0, 0.0]], [1, 1])
    measured = margins.measures(scores, 0.0)
    assert (measured["area"], measured["best_last"], measured["best_harmonic_mean"]) == (50, 50, 0)
    assert [point[1:] for point in measured["curve"]] == [[100, 0], [0, 100]]


def test_a_benchmark_without_new_classes_has_no_curve() -> None:
    scores = scores_from([0, 1], [[0, 0]], [[-1, -1]], [[2.0, 1.0]], [[NONE, NONE]], [2])
    measured = margins.measures(scores, 0.3)
    assert measured["margin_zero"]["accuracy"] == [50]
    unmeasured = {key: value for key, value in measured.items() if key not in {"margin", "margin_zero", "curve"}}
    assert set(unmeasured.values()) == {None}
    assert measured["curve"] == []
    assert margins.choose_margin([scores]) is None


def test_one_image_has_headline_numbers_but_no_curve() -> None:
    scores = scores_from([0], [[0], [0]], [[-1], [1]], [[1.0], [1.0]], [[NONE], [2.0]], [1, 1])
    assert margins.headline_at(scores, 0.0)["accuracy"] == [100, 0]
    assert margins.headline_at(scores, -1.0)["accuracy"] == [100, 100]
    assert margins.measures(scores, 0.0)["area"] is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", ["base", "new"])
def test_scores_that_are_not_finite_are_refused(which: str, value: float) -> None:
    base, new = ([row.copy() for row in rows] for rows in (BASE_SCORE, NEW_SCORE))
    (base if which == "base" else new)[1][2] = value
    with pytest.raises(UserError, match=r"after session 1 .*diverged.*lower the learning rate"):
        scores_from(LABELS, BASE, NEW, base, new, SIZES)


@pytest.mark.parametrize(
    ("base", "new", "base_score", "new_score"),
    [
        (BASE, NEW, BASE_SCORE, NEW_SCORE[:1]),
        ([BASE[0], [0, 1, 1, 0, 2]], NEW, BASE_SCORE, NEW_SCORE),
        (BASE, [NEW[0], [2, 1, 2, 2, 2]], BASE_SCORE, NEW_SCORE),
        (BASE, [NEW[0], [2, 4, 2, 2, 2]], BASE_SCORE, NEW_SCORE),
        (BASE, [[2, -1, -1, -1, -1], NEW[1]], BASE_SCORE, NEW_SCORE),
        (BASE, NEW, BASE_SCORE, [[0.0, NONE, NONE, NONE, NONE], NEW_SCORE[1]]),
        (BASE, NEW, [[1.0, 1.0, 1.0, 1.0, NONE], BASE_SCORE[1]], NEW_SCORE),
        ([[0, 0, 1, 0, -1], BASE[1]], NEW, BASE_SCORE, NEW_SCORE),
    ],
)
def test_inconsistent_scores_are_refused(
    base: list[list[int]], new: list[list[int]], base_score: list[list[float]], new_score: list[list[float]]
) -> None:
    with pytest.raises(UserError):
        scores_from(LABELS, base, new, base_score, new_score, SIZES)


def random_scores(seed: int, n: int = 4000, favour: float = 1.0) -> Scores:
    """Half of the images base; an image's own side is a little ahead, and base classes are ahead by `favour`."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 4
    base = np.where(rng.random(n) < 0.8, labels % 2, 1 - labels % 2)
    new = 2 + np.where(rng.random(n) < 0.6, labels % 2, 1 - labels % 2)
    turns = favour + rng.normal(0, 1, n) + np.where(labels < 2, 0.7, -0.7)
    first = labels < 2
    return scores_from(
        labels,
        [np.where(first, base, -1), base],
        [np.full(n, -1), new],
        [np.where(first, turns, -np.inf), turns],
        [np.full(n, -np.inf), np.zeros(n)],
        [2, 2],
    )


def test_a_folder_without_scores_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"predictions\.safetensors has no scores .*run it again"):
        margins.read_scores(tmp_path, [2, 2])
    os.mkfifo(tmp_path / "predictions.safetensors")
    with pytest.raises(UserError, match="not a regular file"):
        margins.read_scores(tmp_path, [2, 2])
    (tmp_path / "predictions.safetensors").unlink()
    save_file({"labels": np.array(LABELS)}, tmp_path / "predictions.safetensors")  # as earlier versions wrote it
    with pytest.raises(UserError, match="has no scores of base and new classes"):
        margins.read_scores(tmp_path, [2, 2])


def test_a_long_curve_is_thinned_to_101_points_that_keep_its_area() -> None:
    measured = margins.measures(random_scores(1), 0.0)
    _, base, new = np.array(measured["curve"]).T
    assert 90 < len(base) <= 101
    assert max(np.abs(np.diff(base)) + np.abs(np.diff(new))) < 2 * (base[0] + new[-1]) / 100
    assert -np.trapezoid(new, base) / 100 == pytest.approx(measured["area"], abs=0.02)


def test_new_accuracy_at_a_base_accuracy_is_read_off_the_curve() -> None:
    curve = [[-1.0, 80.0, 0.0], [0.0, 80.0, 20.0], [1.0, 60.0, 30.0], [2.0, 60.0, 40.0], [3.0, 0.0, 50.0]]
    assert new_at_base_accuracy(curve, 80.0) == 20.0
    assert new_at_base_accuracy(curve, 70.0) == 30.0
    assert new_at_base_accuracy(curve, 60.0) == 40.0
    assert new_at_base_accuracy(curve, 30.0) == 45.0
    assert new_at_base_accuracy(curve, 80.1) is None
    assert new_at_base_accuracy([], 50.0) is None


def test_at_its_own_base_accuracy_a_method_has_its_own_new_accuracy() -> None:
    scores = random_scores(3)
    headline = margins.headline_at(scores, 0.3)
    assert headline["base"] is not None
    curve = margins.measures(scores, 0.0)["curve"]
    assert new_at_base_accuracy(curve, headline["base"]) == pytest.approx(headline["new"], abs=0.1)


@pytest.mark.parametrize("favour", [-0.8, 0.0, 1.3])
def test_the_chosen_margin_is_that_of_a_search_over_all_steps(favour: float) -> None:
    runs = [random_scores(seed, n=200, favour=favour) for seed in (1, 2, 3)]
    tried = sorted((round(step * 0.05, 10) for step in range(-200, 201)), key=abs)
    found = [[margins.headline_at(run, margin) for run in runs] for margin in tried]
    last = [np.mean([h["last"] for h in its]) for its in found]
    harmonic = [np.mean([h["harmonic_mean"] or 0.0 for h in its]) for its in found]
    best_last = max(last)
    allowed = [i for i in range(len(tried)) if last[i] >= best_last - margins.COST]
    wanted = tried[max(allowed, key=lambda i: harmonic[i])]
    assert margins.choose_margin(runs) == wanted
    assert len(allowed) < len(tried)


def test_the_chosen_margin_gives_up_no_more_than_the_cost() -> None:
    """The best harmonic mean would need margin 2, which costs a tenth of all images; margin 0 is as good as 0.05."""
    labels = np.array([0] * 9 + [1])
    turns = np.array([[np.inf] * 10, [1.0] * 5 + [3.0] * 4 + [1.5]])
    base_score = np.array([[1.0] * 9 + [NONE], turns[1]])
    new_score = np.array([[NONE] * 10, [0.0] * 10])
    scores = scores_from(labels, [[0] * 9 + [-1], [0] * 10], [[-1] * 10, [1] * 10], base_score, new_score, [1, 1])
    assert margins.headline_at(scores, 2.0)["harmonic_mean"] == pytest.approx(200 * 4 / 13)
    assert margins.choose_margin([scores]) == 0.0
