"""Leave-one-out, the threshold for unknown and confidence, against plain loops over all photos and classes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import beta

from fscil import Learner
from fscil.learner.confidence import calibration_error, fit_temperature, log_loss, softmax
from fscil.learner.leave_one_out import held_out
from fscil.learner.store import TAUGHT
from fscil.learner.unknown import choose_threshold
from learner_helpers import Digits


@pytest.fixture(scope="module")
def taught(digits: Digits) -> Learner:
    """Seven classes of two to seven photos, and one of a single photo."""
    learner = Learner("embedded")
    for i, name in enumerate(list(digits)[:7]):
        learner.teach(name, digits[name][: 2 + i])
    learner.teach("single", digits["digit 9"][0])
    return learner


class Plain:
    """Everything again, one photo and one class at a time, in float64."""

    def __init__(self, learner: Learner) -> None:
        store = learner._knowledge.store
        self.photos = [(store.name_of(i), vector) for i, vector in enumerate(store.vectors())]
        self.names = sorted({name for name, _ in self.photos})
        self.precisions = [self.precision(without) for without in range(len(self.photos))]

    def own(self, name: str, without: int | None = None) -> list[NDArray[np.float64]]:
        return [vector for i, (its, vector) in enumerate(self.photos) if its == name and i != without]

    def precision(self, without: int) -> NDArray[np.float64]:
        """The inverse of the shrunk covariance within classes, to which the photo has added nothing."""
        several = [name for name in self.names if len(self.own(name)) > 1]

        def covariance(without: int | None) -> NDArray[np.float64]:
            parts = []
            for name in several:
                deviations = np.array(own := self.own(name, without)) - np.mean(own, axis=0)
                parts.append(deviations.T @ deviations / (len(self.own(name)) - 1))
            return np.mean(parts, axis=0)

        mean_variance = np.trace(covariance(None)) / 64
        shrinkage = 10 * (len(self.names) / len(several)) ** 2 * mean_variance
        return np.linalg.inv(covariance(without) + shrinkage * np.eye(64))

    def logit(self, i: int, name: str, without: int | None = None) -> float | None:
        """Of a photo that the metric does not know."""
        own, query, P = self.own(name, without), self.photos[i][1], self.precisions[i]
        if not own:
            return None
        mean = np.mean(own, axis=0)
        return float(16 * query @ P @ mean / np.sqrt((query @ P @ query) * (mean @ P @ mean)))

    def logits(self, i: int) -> dict[str, float]:
        """Of a photo that was never taught."""
        found = {name: self.logit(i, name, without=i) for name in self.names}
        return {name: logit for name, logit in found.items() if logit is not None}


def test_lessons_leave_every_photo_out_in_turn(taught: Learner, digits: Digits) -> None:
    plain = Plain(taught)
    for name in plain.names:
        lesson = taught.teach(name, digits["digit 9" if name == "single" else name][0])  # changes nothing
        own = [i for i, (its, _) in enumerate(plain.photos) if its == name]
        if len(own) == 1:
            assert lesson.accuracy is None
            continue
        answers = [max(logits := plain.logits(i), key=lambda each, logits=logits: logits[each]) for i in own]
        assert lesson.accuracy == pytest.approx(np.mean([answer == name for answer in answers]))
        assert {other for _, other in lesson.mistaken} == set(answers) - {name}


def score(logits: list[float], share: float) -> float:
    best, *others = sorted(logits, reverse=True)
    return best - share * float(np.mean(others[:10]))


def test_the_threshold_for_unknown_is_that_of_a_plain_loop(taught: Learner) -> None:
    plain, unknown = Plain(taught), taught.unknown
    several = [i for i, (name, _) in enumerate(plain.photos) if name != "single"]
    known = [list(plain.logits(i).values()) for i in several]
    strangers = [
        [plain.logit(i, other) or 0 for other in plain.names if other != name]
        for i, (name, _) in enumerate(plain.photos)
    ]
    apart = {
        share: np.mean([score(k, share) > score(s, share) for k in known for s in strangers])
        for share in (0, 0.25, 0.5, 0.75, 1)
    }
    assert unknown.share is not None
    assert apart[unknown.share] == max(apart.values())
    scores = sorted(score(k, unknown.share) for k in known)
    assert len(known) == 35
    threshold = scores[0]  # the second lowest of 35 would keep 95 % with a probability of 0.53, the lowest of 0.83
    assert unknown.threshold == pytest.approx(threshold, abs=1e-4)
    assert (unknown.known_photos, unknown.unknown_photos) == (len(known), len(strangers))
    assert unknown.kept == 1
    above = [score(s, unknown.share) >= threshold for s in strangers]
    assert unknown.let_through == pytest.approx(np.mean(above), abs=0.02)


@pytest.mark.parametrize("n", [20, 35, 100, 400, 1000])
def test_the_threshold_keeps_what_is_promised_with_the_probability_that_is_promised(n: int) -> None:
    """Against SciPy: of n draws, the k-th lowest keeps a share that is distributed as Beta(n + 1 - k, k)."""
    places = np.arange(n, dtype=np.float64)
    k = int(choose_threshold(np.random.default_rng(0).permutation(places))) + 1
    enough = [beta.sf(0.95, n + 1 - each, each) for each in (k, k + 1)]
    assert enough[1] < 0.7
    assert enough[0] >= 0.7 or k == 1


def test_the_temperature_has_the_least_log_loss(taught: Learner) -> None:
    plain, confidence = Plain(taught), taught.confidence
    several = [i for i, (name, _) in enumerate(plain.photos) if name != "single"]
    logits = np.array([[plain.logits(i)[name] for name in plain.names] for i in several])
    own = np.array([plain.names.index(plain.photos[i][0]) for i in several])
    tried = {t: log_loss(logits / t, own) for t in np.geomspace(0.02, 50, 300)}
    assert confidence.temperature == pytest.approx(min(tried, key=lambda t: tried[t]), rel=0.03)
    assert confidence.log_loss == pytest.approx(min(tried.values()), abs=1e-3)
    assert confidence.error_base is None
    raised = np.exp(logits / confidence.temperature)
    error = calibration_error(raised / raised.sum(1, keepdims=True), own)
    assert confidence.error_taught == pytest.approx(error, abs=1e-3)


def test_calibration_error_is_the_mean_gap_of_bins() -> None:
    probabilities = np.array([[0.95, 0.05], [0.93, 0.07], [0.35, 0.65]])
    own = np.array([0, 1, 0])
    assert calibration_error(probabilities, own) == pytest.approx((abs(0.95 + 0.93 - 1) + 0.65) / 3)
    sure = np.array([[9.0, 0.0], [0.0, 9.0], [9.0, 0.0]])
    assert fit_temperature(sure, np.array([0, 1, 1])) > 5  # too sure of itself


@pytest.mark.parametrize("n", [20, 200])
def test_answers_that_were_all_right_are_not_certain(n: int) -> None:
    """Laplace's rule of succession: the next one is right with (n + 1) / (n + 2)."""
    own = np.arange(n) % 2
    alike = np.where(own[:, None] == np.arange(2), 1.0, 0.5)
    sure = softmax(alike / fit_temperature(alike, own)).max(1)
    assert sure == pytest.approx((n + 1) / (n + 2), abs=2e-3)


@pytest.mark.parametrize("calibrator", ["transformer", "paired"])
def test_leaving_out_is_exact_for_calibrators_that_see_all_rows(
    calibrator: str, runs: dict[str, Path], digit_images: tuple[torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    """Against a learner that was never taught the photo."""
    images, labels = digit_images
    learner = Learner.load(shutil.copytree(runs[calibrator], tmp_path / "run"))
    for label in (3, 8):
        learner.teach(f"another {label}", images[labels == label][:3])
    knowledge = learner._knowledge
    places = knowledge.store.with_role(TAUGHT)
    held = held_out(knowledge.store, knowledge.rows, places, knowledge.columns().visible)
    query = torch.from_numpy(knowledge.store.vectors(places[:1]).astype(np.float32))
    learner.forget(photo=images[labels == 3][0])
    logits, columns = knowledge.logits(query)
    expected = dict(zip(columns.answers, logits[0], strict=True))
    names = [*(str(digit) for digit in range(10)), "another 3", "another 8"]
    assert held.logits[0] == pytest.approx([expected[name] for name in names], abs=2e-3)
    learner.forget("another 3")
    logits, _ = knowledge.logits(query)
    assert np.sort(held.strangers[0])[1:] == pytest.approx(np.sort(logits[0]), abs=2e-3)


def test_with_too_little_it_says_so(learner: Learner, digits: Digits) -> None:
    learner.teach("one", digits["digit 1"])
    for name in ("two", "three"):
        learner.teach(name, digits["digit 2"][0])
    assert (learner.unknown.threshold, learner.confidence.temperature) == (None, None)
    assert "from 20 photos of 3 classes on" in learner.unknown.reason
    assert "from 20 photos of 2 classes on" in learner.confidence.reason
    (prediction,) = learner.predict(digits["digit 9"][3])
    assert prediction.name != "unknown"
    assert not prediction.calibrated


def test_unknown_says_why(taught: Learner, digits: Digits, tmp_path: Path) -> None:
    taught.save(tmp_path / "copy")
    learner = Learner.load(tmp_path / "copy")
    noise = torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    found = learner.predict(noise)
    assert [each.name for each in found] == ["unknown"] * 6
    assert "less like" in found[0].reason
    assert [each.name for each in learner.predict(noise, unknown=False)] == [each.best for each in found]
    photo = digits["digit 3"][9]
    best = learner.predict(photo)[0].best
    assert learner.teach_unknown([photo, photo]) == 1
    (answer,) = learner.predict(photo)
    assert (answer.name, answer.best) == ("unknown", best)
    assert answer.reason == f"nearer to the counter-example {photo.name} than to {best}"
    own = [path for name in list(digits)[:7] for path in digits[name][:2]]
    assert np.mean([each.name == "unknown" for each in learner.predict(own)]) < 0.3


def test_witnesses_measure_base_classes_and_change_no_row(
    runs: dict[str, Path], digit_images: tuple[torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    images, labels = digit_images
    learner = Learner.load(shutil.copytree(runs["transformer"], tmp_path / "run"))
    before = learner._knowledge.model.rows.clone()
    for digit in range(4):
        assert learner.witness(str(digit), images[labels == digit][:8]) == 8
    assert torch.equal(learner._knowledge.model.rows, before)
    assert learner.confidence.temperature is not None
    assert learner.confidence.error_base is not None
    assert learner.confidence.error_taught is None
    assert learner.unknown.known_photos == 32
    logits, columns = learner._knowledge.logits(learner._knowledge.model.embed_here(images[labels == 2][:1]))
    knowledge = learner._knowledge
    place = np.flatnonzero(knowledge.store.labels == 2)[:1]
    held = held_out(knowledge.store, knowledge.rows, place, knowledge.columns().visible)
    assert held.logits[0] == pytest.approx(logits[0][np.argsort(columns.order)], abs=2e-2)
