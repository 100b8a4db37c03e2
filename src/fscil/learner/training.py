"""Learning from many photos: the place where LIMIT is trained on a folder of them."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from fscil.errors import UserError

if TYPE_CHECKING:
    from fscil.learner.learner import Learner


def fit_folder(learner: Learner, folder: str | PathLike[str]) -> None:
    """Train on a folder with a folder of photos for each class, and make the learner know them as its base classes.

    To be filled: it trains a model, sets it with `learner._begin(model, class_names)`, and keeps photos that it held
    out with `learner.witness(name, photos)`, by which confidence and unknown are then measured.
    """
    raise UserError(f"training on a folder ({folder}) is not available yet; teach(name, images) needs no training")
