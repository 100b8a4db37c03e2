"""scikit-learn takes a learner for one of its classifiers, with paths as its samples."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import cross_val_predict, cross_val_score

from fscil import Learner, UserError
from learner_helpers import Digits, rows_of


@pytest.fixture(scope="module")
def samples(digits: Digits) -> tuple[list[str], list[str]]:
    pairs = [(str(path), name) for name, paths in digits.items() for path in paths[:6]]
    return [path for path, _ in pairs], [name for _, name in pairs]


def test_clone_and_parameters(folder: Path) -> None:
    learner = Learner("embedded")
    copied = clone(learner)
    assert copied is not learner
    assert copied.get_params() == {"encoder": "embedded", "device": "cpu"}
    assert is_classifier(learner)
    assert learner.set_params(encoder=str(folder)).get_params()["encoder"] == str(folder)
    with pytest.raises(ValueError, match="no parameter 'epochs'"):
        learner.set_params(epochs=3)
    assert list(clone(Learner.load(folder)).classes_) == []  # the encoder alone


def test_cross_validation_on_paths(samples: tuple[list[str], list[str]]) -> None:
    paths, names = samples
    scores = cross_val_score(Learner("embedded"), paths, names, cv=3)
    assert scores.shape == (3,)
    assert scores.min() > 0.4  # chance is 0.1


def test_answers_are_names_to_scikit_learn(samples: tuple[list[str], list[str]]) -> None:
    paths, names = samples
    assert cross_val_score(Learner("embedded"), paths, names, cv=3, scoring="accuracy").min() > 0.3
    answers = cross_val_predict(Learner("embedded"), paths, names, cv=3)
    assert {*answers.tolist()} <= {*names, "unknown"}
    answer = Learner("embedded").fit(paths, names).predict(paths[0])[0]
    assert answer == answer.name
    copied = pickle.loads(pickle.dumps(answer))
    assert (copied, copied.as_dict()) == (answer, answer.as_dict())


def test_a_learner_goes_to_another_process(samples: tuple[list[str], list[str]], folder: Path) -> None:
    paths, names = samples
    for learner in (Learner("embedded").fit(paths, names), Learner.load(folder)):
        copied = pickle.loads(pickle.dumps(learner))  # as joblib does for n_jobs=2
        assert np.array_equal(copied.predict_proba(paths[:5]), learner.predict_proba(paths[:5]))
        copied.teach("new", paths[0])
        assert ("new" in learner.classes_) is (learner.folder is not None)  # a folder is still shared


def test_fit_starts_anew_and_partial_fit_goes_on(samples: tuple[list[str], list[str]], folder: Path) -> None:
    paths, names = samples
    learner = Learner("embedded").fit(paths, names)
    fitted = rows_of(learner)
    learner.fit(paths[:6], names[:6]).partial_fit(paths[6:], names[6:], classes=sorted(set(names)))
    again = rows_of(learner)
    assert all((again[name] == fitted[name]).all() for name in fitted)
    assert learner.score(paths, names) == np.mean(
        [each.best == name for each, name in zip(learner.predict(paths), names, strict=True)]
    )
    answers = [each.name for each in learner.predict(paths)]
    assert learner.score(paths, answers, unknown=True) == 1
    assert list(learner.classes_) == sorted(set(names))
    with pytest.raises(UserError, match="3 images have 2 names"):
        learner.partial_fit(paths[:3], names[:2])
    with pytest.raises(UserError, match="fit needs a name for every image"):
        learner.fit(paths)
    with pytest.raises(UserError, match="stays as it is"):
        Learner.load(folder).fit(paths, names)
