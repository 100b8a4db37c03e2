from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, recall_score
from sklearn.metrics import confusion_matrix as sklearn_confusion

from fscil import metrics
from fscil.errors import UserError


@st.composite
def streams(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Labels, predictions and classes per session, with at least one test image for every class."""
    classes_per_session = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    classes = sum(classes_per_session)
    labels = rng.permutation(np.concatenate([np.arange(classes), rng.integers(0, classes, 20)]))
    skill = draw(st.sampled_from([0.0, 0.3, 0.8, 1.0]))
    predictions = np.full((len(classes_per_session), len(labels)), -1)
    for i, seen in enumerate(np.cumsum(classes_per_session)):
        here = labels < seen
        right = rng.random(here.sum()) < skill
        predictions[i, here] = np.where(right, labels[here], rng.integers(0, seen, here.sum()))
    return labels, predictions, classes_per_session


@pytest.mark.filterwarnings("ignore:A single label was found")  # streams of one class
@given(streams())
@settings(max_examples=60, deadline=None)
def test_numbers_agree_with_scikit_learn(stream: tuple[np.ndarray, np.ndarray, list[int]]) -> None:
    labels, predictions, classes_per_session = stream
    summary = metrics.summarise(labels, predictions, classes_per_session)
    base_classes, classes = classes_per_session[0], sum(classes_per_session)
    for i, seen in enumerate(np.cumsum(classes_per_session)):
        here = labels < seen
        assert summary["accuracy"][i] == pytest.approx(100 * accuracy_score(labels[here], predictions[i][here]))
    last = predictions[-1]
    old = labels < base_classes
    assert summary["base"] == pytest.approx(100 * accuracy_score(labels[old], last[old]))
    assert (np.array(summary["confusion"]) == sklearn_confusion(labels, last, labels=np.arange(classes))).all()

    def recall(first: int, end: int) -> float:
        return 100 * recall_score(labels, last, labels=np.arange(first, end), average="macro", zero_division=0)

    assert summary["per_class"]["base"] == pytest.approx(recall(0, base_classes))
    assert summary["per_class"]["last"] == pytest.approx(recall(0, classes))
    if len(classes_per_session) > 1:
        assert summary["new"] == pytest.approx(100 * accuracy_score(labels[~old], last[~old]))
        assert summary["per_class"]["new"] == pytest.approx(recall(base_classes, classes))


@given(streams())
@settings(max_examples=60, deadline=None)
def test_numbers_of_one_result_fit_together(stream: tuple[np.ndarray, np.ndarray, list[int]]) -> None:
    labels, predictions, classes_per_session = stream
    s = metrics.summarise(labels, predictions, classes_per_session)
    assert s["pd"] == s["accuracy"][0] - s["last"]
    assert s["last"] == s["accuracy"][-1]
    assert s["average"] == pytest.approx(np.mean(s["accuracy"]))
    assert len(s["forgetting"]) == len(classes_per_session)
    assert np.sum(s["confusion"]) == len(labels)
    assert np.trace(s["confusion"]) * 100 / len(labels) == pytest.approx(s["last"])
    if s["new"] is not None:
        assert s["base"] is not None
        assert s["harmonic_mean"] is not None
        low, high = sorted([s["base"], s["new"]])
        assert low - 1e-9 <= s["last"] <= high + 1e-9
        assert low - 1e-9 <= s["harmonic_mean"] <= (low + high) / 2 + 1e-9 or low == 0 == s["harmonic_mean"]


@given(streams(), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_the_order_of_the_test_images_does_not_matter(
    stream: tuple[np.ndarray, np.ndarray, list[int]], seed: int
) -> None:
    labels, predictions, classes_per_session = stream
    order = np.random.default_rng(seed).permutation(len(labels))
    shuffled = metrics.summarise(labels[order], predictions[:, order], classes_per_session)
    assert shuffled == metrics.summarise(labels, predictions, classes_per_session)


def test_a_stream_counted_by_hand() -> None:
    labels = [0, 0, 1, 1, 2, 2]  # classes 0 and 1 are the base, class 2 comes later
    predictions = [[0, 0, 1, 0, -1, -1], [0, 2, 2, 0, 2, 0]]
    s = metrics.summarise(labels, predictions, [2, 1])
    assert s["accuracy"] == [75.0, pytest.approx(100 / 3)]
    assert (s["base"], s["new"], s["harmonic_mean"]) == (25.0, 50.0, pytest.approx(100 / 3))
    assert s["forgetting"] == [0.0, 50.0]
    assert s["confusion"] == [[1, 0, 1], [1, 0, 1], [1, 0, 1]]


def test_forgetting_counts_from_the_best_earlier_session_of_each_group() -> None:
    labels = [0, 0, 1, 1, 2, 2]
    predictions = [
        [0, 0, -1, -1, -1, -1],  # group 0: 100
        [1, 0, 1, 0, -1, -1],  # group 0: 50, group 1: 50
        [0, 1, 1, 1, 2, 2],  # group 0: 50 (50 below its best), group 1: 100 (50 above its best)
    ]
    assert metrics.forgetting(labels, predictions, [1, 1, 1]) == [0.0, 50.0, 0.0]


def test_per_sample_and_per_class_differ_when_classes_have_unequal_test_sets() -> None:
    labels = [0] * 8 + [1] * 2
    predictions = [[0] * 8 + [0] * 2]
    s = metrics.summarise(labels, predictions, [2])
    assert s["last"] == 80.0
    assert s["per_class"]["last"] == 50.0


def test_a_benchmark_without_new_classes_has_no_new_accuracy() -> None:
    s = metrics.summarise([0, 1], [[0, 0]], [2])
    assert s["new"] is None
    assert s["harmonic_mean"] is None
    assert s["per_class"]["new"] is None
    assert s["per_class"]["harmonic_mean"] is None
    assert (s["pd"], s["forgetting"]) == (0.0, [0.0])


def test_classes_without_test_images_are_left_out() -> None:
    s = metrics.summarise([0, 0, 2], [[0, 0, -1], [0, 2, 2], [0, 2, 2]], [2, 1, 1])
    assert s["per_class"]["base"] == 50.0  # class 1 is never tested
    assert s["per_class"]["new"] == 100.0  # nor is class 3
    assert s["forgetting"] == [0.0, 50.0, 25.0]


def test_nothing_right_gives_zero_harmonic_mean() -> None:
    assert metrics.harmonic_mean(0.0, 0.0) == 0.0


def test_tensors_are_welcome() -> None:
    s = metrics.summarise(torch.tensor([0, 1]), torch.tensor([[0, -1], [0, 1]]), [1, 1])
    assert s["accuracy"] == [100.0, 100.0]


@pytest.mark.parametrize(
    ("labels", "predictions", "classes_per_session", "message"),
    [
        ([0, 1], [[0, 1, 1]], [2], "predictions must be"),
        ([0, 1], [[0, 1]], [1, 1], "predictions must be"),
        ([0, 2], [[0, 1]], [2], "labels must lie in 0 .. 1"),
        ([0, 1], [[0, 2]], [2], "after session 0 predictions must lie in 0 .. 1"),
        ([0, 1], [[0, -1]], [2], "after session 0 predictions must lie in 0 .. 1"),
        ([0, 1], [[0, 0], [0, 1]], [1, 1], "must be -1"),
        ([1], [[-1], [1]], [1, 1], "no test images"),
        ([], [], [], "classes_per_session"),
    ],
)
def test_input_that_contradicts_itself_is_refused(
    labels: list[int], predictions: list[list[int]], classes_per_session: list[int], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        metrics.summarise(labels, predictions, classes_per_session)
