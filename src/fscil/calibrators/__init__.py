"""Calibrators: set functions over classifier rows and a query (the paper's T). A registry maps names to them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fscil.calibrators.bi_lstm import BiLSTM
from fscil.calibrators.calibrator import Calibrator
from fscil.calibrators.cosine import Cosine, LearnedScale, Linear
from fscil.calibrators.deep_sets import DeepSets
from fscil.calibrators.emd import EMD
from fscil.calibrators.graph import Graph
from fscil.calibrators.order import changed_by_order
from fscil.calibrators.paired import Paired
from fscil.calibrators.transformer import Transformer
from fscil.calibrators.virtual import Virtual
from fscil.errors import UserError
from fscil.naming import choose, entry_points

BUILT_IN: dict[str, Callable[..., Calibrator]] = {
    "bi-lstm": BiLSTM,
    "cosine": Cosine,
    "deep-sets": DeepSets,
    "emd": EMD,
    "graph": Graph,
    "learned-scale": LearnedScale,
    "linear": Linear,
    "paired": Paired,
    "transformer": Transformer,
    "virtual": Virtual,
}


def names() -> list[str]:
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group="fscil.calibrators"))})


def build(name: str, dim: int, **options: Any) -> Calibrator:
    """The calibrator of that name for embeddings of size dim, freshly initialised from torch's global generator.

    Other packages register theirs under the entry point fscil.calibrators: a class, or a function of dim and options.
    """
    choose(name, names(), "calibrator")
    if name in BUILT_IN:
        cls = BUILT_IN[name]
    else:
        (point,) = (each for each in entry_points(group="fscil.calibrators") if each.name == name)
        cls = point.load()
    try:
        inspect.signature(cls).bind(dim, **options)
    except TypeError as error:
        known = ", ".join(list(inspect.signature(cls).parameters)[1:])
        raise UserError(f"the calibrator {name!r} does not fit its options ({error}); it takes {known}") from error
    return cls(dim, **options)


__all__ = [
    "BUILT_IN",
    "EMD",
    "BiLSTM",
    "Calibrator",
    "Cosine",
    "DeepSets",
    "Graph",
    "LearnedScale",
    "Linear",
    "Paired",
    "Transformer",
    "Virtual",
    "build",
    "changed_by_order",
    "names",
]  # fmt: skip
