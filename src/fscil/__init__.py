"""Few-shot class-incremental learning: train once, then teach new classes from a handful of images each.

import fscil

result = fscil.run("limit", "digits", seed=1, epochs=20)     # one method, one benchmark, one seed
results = fscil.compare("digits", ["limit", "decoupled-cosine"], seeds=[1, 2])
model = fscil.load("runs/limit/model")                       # the model that a run has learned
model.predict(["a.jpg", "b.jpg"])                            # class names

learner = fscil.Learner(encoder="embedded")                  # knows nothing yet
learner.teach("tulip", ["c.jpg", "d.jpg"])                   # and says whether that is enough
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fscil.api import compare, run
    from fscil.classifier import Classifier, load
    from fscil.errors import UserError
    from fscil.learner import Learner
    from fscil.results import Result, read_result

__version__ = "0.1.0"

# imported on first use, so that importing the package itself is fast
_HOMES = {
    "Classifier": "classifier", "Learner": "learner", "Result": "results",
    "UserError": "errors", "compare": "api", "load": "classifier", "read_result": "results", "run": "api",
}  # fmt: skip

__all__ = ["Classifier", "Learner", "Result", "UserError", "__version__", "compare", "load", "read_result", "run"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fscil' has no attribute {name!r}")
    return getattr(import_module(f"fscil.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
