"""The learner: teach a classifier from a handful of photos. Command line and server call only what is named here."""

from fscil.learner.confidence import Confidence
from fscil.learner.learner import Learner
from fscil.learner.lesson import Lesson, Pair
from fscil.learner.names import UNKNOWN, check_name
from fscil.learner.photos import TaughtPhoto
from fscil.learner.prediction import Prediction, Rival
from fscil.learner.store import Done
from fscil.learner.training import check, fit
from fscil.learner.unknown import Unknown

__all__ = [
    "UNKNOWN", "Confidence", "Done", "Learner", "Lesson", "Pair", "Prediction", "Rival", "TaughtPhoto", "Unknown",
    "check", "check_name", "fit",
]  # fmt: skip
