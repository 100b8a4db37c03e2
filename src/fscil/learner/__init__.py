"""The learner: teach a classifier from a handful of photos. Command line and server call only what is named here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fscil.learner.confidence import Confidence
    from fscil.learner.evaluation import Evaluation, evaluate
    from fscil.learner.learner import Learner
    from fscil.learner.lesson import Lesson, Pair
    from fscil.learner.names import UNKNOWN, check_name
    from fscil.learner.page import write_page
    from fscil.learner.photos import TaughtPhoto
    from fscil.learner.prediction import Prediction, Rival
    from fscil.learner.saving import is_free
    from fscil.learner.store import Done
    from fscil.learner.taught import KnownClass, Taught
    from fscil.learner.training import check, fit
    from fscil.learner.unknown import Unknown

# imported on first use: what only reads or changes what was taught needs no torch
_HOMES = {
    "UNKNOWN": "names", "Confidence": "confidence", "Done": "store", "Evaluation": "evaluation",
    "KnownClass": "taught", "Learner": "learner", "Lesson": "lesson", "Pair": "lesson", "Prediction": "prediction",
    "Rival": "prediction", "Taught": "taught", "TaughtPhoto": "photos", "Unknown": "unknown", "check": "training",
    "check_name": "names", "evaluate": "evaluation", "fit": "training", "is_free": "saving",
    "write_page": "page",
}  # fmt: skip

__all__ = [
    "UNKNOWN", "Confidence", "Done", "Evaluation", "KnownClass", "Learner", "Lesson", "Pair", "Prediction", "Rival",
    "Taught", "TaughtPhoto", "Unknown", "check", "check_name", "evaluate", "fit", "is_free", "write_page",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fscil.learner' has no attribute {name!r}")
    return getattr(import_module(f"fscil.learner.{_HOMES[name]}"), name)
