"""Learner: a classifier that is taught, class by class, from a handful of photos each. Labels are names.

from fscil import Learner

learner = Learner(encoder="embedded")             # knows no class yet; or Learner.load("runs/limit/model")
lesson = learner.teach("tulip", ["a.jpg", "b.jpg"])
print(lesson)                                     # is it enough?
learner.predict("c.jpg")[0].name                  # a class, or `unknown`
learner.save("flowers")                           # from then on, what is taught is kept there at once
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fscil.errors import UserError
from fscil.learner import saving
from fscil.learner.confidence import Confidence
from fscil.learner.evaluation import ClassScore, Mistake, left_out
from fscil.learner.names import UNKNOWN, check_name
from fscil.learner.prediction import Prediction, predict_each, predictions, scored
from fscil.learner.store import TAUGHT
from fscil.learner.teaching import Pictures, Teachable
from fscil.learner.training import fit_folder
from fscil.learner.unknown import Unknown
from fscil.model_facts import model_folder_of
from fscil.model_folder import load_model
from fscil.pictures import listed

PARAMETERS = ("encoder", "device")


class Learner(Teachable):
    """Images are paths, Pillow images, uint8 arrays or tensors, one or a list of them, or a batch uint8 [n, 3, h, w].

    A learner that has a folder (`load`, `save`) writes every change there before it returns, and sees what other
    processes teach to the same folder. Safe to use from several threads. For scikit-learn it is a classifier.
    """

    _estimator_type = "classifier"  # for scikit-learn before 1.6

    @classmethod
    def load(cls, folder: str | PathLike[str], *, device: str = "cpu") -> Self:
        """A model folder, or the run folder around it: a run's classes are the base classes."""
        path = model_folder_of(Path(folder))
        learner = cls(str(path), device=device)
        model, names = load_model(path)
        learner._begin(model, names, path)
        return learner

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a model folder that needs no network, into a folder that does not exist. A learner without a folder
        then keeps what it is taught there; one that has a folder stays with it."""
        knowledge, path = self._knowledge, Path(folder)
        with knowledge.lock:
            knowledge.refresh()
            saving.save(knowledge, path, self.folder)
            if self.folder is None:
                knowledge.settle(path)
                self.folder = path

    @property
    def classes_(self) -> NDArray[np.str_]:
        """Names of the classes that may be answered, in the order of predict_proba's columns."""
        with self._knowledge.lock:
            self._knowledge.refresh()
            return np.array(self._knowledge.columns().answers, dtype=np.str_)

    def predict(self, images: Pictures, *, unknown: bool = True, rivals: int = 4) -> list[Prediction]:
        """unknown: whether a photo may be unknown; otherwise it is given its best class."""
        return predictions(scored(self._knowledge, listed(images)), unknown, rivals)

    def predict_each(
        self, images: Pictures, *, unknown: bool = True, rivals: int = 4
    ) -> Iterator[Prediction | UserError]:
        """The same one by one, as they are found; an error takes the place of an image that cannot be read."""
        return predict_each(self._knowledge, listed(images), unknown, rivals)

    def predict_proba(self, images: Pictures) -> NDArray[np.float64]:
        """[n, classes], in the order of classes_"""
        return scored(self._knowledge, listed(images)).probabilities

    @property
    def unknown(self) -> Unknown:
        """The threshold below which a photo is unknown, and what it was measured to do."""
        return self._knowledge.measured()[1]

    @property
    def confidence(self) -> Confidence:
        """The temperature of probabilities, and how far they were off."""
        return self._knowledge.measured()[0]

    def left_out(self) -> tuple[list[ClassScore], list[Mistake]]:
        """How many kept photos of every class are recognised when they are left out, and what the others are taken
        for."""
        return left_out(self._knowledge)

    def fit(self, X: Any, y: Sequence[str] | None = None) -> Self:
        """Start anew and teach images X of classes y; or, without y, train on a folder of folders of photos."""
        if self.folder is not None:
            raise UserError(f"fit starts anew, and {self.folder} stays as it is: use Learner(encoder=...).fit")
        if y is None:
            if not isinstance(X, str | os.PathLike):
                raise UserError("fit needs a name for every image, fit(images, names), or a folder of photos")
            fit_folder(self, X)
            return self
        self._kept = None
        return self.partial_fit(X, y)

    def partial_fit(self, X: Any, y: Sequence[str], classes: object = None) -> Self:
        """Teach images X of classes y, in one step."""
        images, names = listed(X), [check_name(name) for name in y]
        if len(images) != len(names):
            raise UserError(f"{len(images)} images have {len(names)} names; give a name for each")
        samples, _, _ = self._samples(images, False)
        self._add("teach", names, samples, TAUGHT)
        return self

    def score(self, X: Any, y: Sequence[str], *, unknown: bool = False) -> float:
        """Share of right answers. unknown: count `unknown` as the answer where it is; y may say `unknown`, too."""
        names = [UNKNOWN if name == UNKNOWN else check_name(name) for name in y]
        found = self.predict(X, unknown=unknown, rivals=0)
        if len(found) != len(names) or not names:
            raise UserError(f"{len(found)} images have {len(names)} names; give a name for each")
        return sum(each.name == name for each, name in zip(found, names, strict=True)) / len(names)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **params: Any) -> Self:
        """Other parameters are for a learner that starts anew."""
        for name, value in params.items():
            if name not in PARAMETERS:
                raise ValueError(f"a learner has no parameter {name!r}; it has {', '.join(PARAMETERS)}")
            setattr(self, name, value)
        if params:
            self._kept, self.folder = None, None
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return self._kept is not None and len(self.classes_) > 0

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        inputs = InputTags(two_d_array=False, string=True)
        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=inputs,
        )

    def __repr__(self) -> str:
        return f"Learner(encoder={os.fspath(self.encoder)!r})"
