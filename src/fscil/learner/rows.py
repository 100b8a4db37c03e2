"""Classifier rows from kept embeddings: Eq. (prototype), the mean embedding of a class's photos."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fscil.calibrators import Cosine
from fscil.learner.metric import Metric, metric_of
from fscil.learner.store import Store
from fscil.model import Model, as_prototypes

AT_ONCE = 8192  # photos that are summed together, in float64


class Rows:
    """Keeps a model's rows as the store says: those of base classes, then one for each taught class.

    A model without base classes gets a metric by its photos, too. `keys` are the photos of every taught row; a row is
    computed only if its photos have changed.
    """

    def __init__(self, model: Model, base: int) -> None:
        self.model, self.base = model, base
        self.keys: list[bytes] = []
        self.names: list[str] = []  # of taught rows
        self.metric: Metric | None = None

    def follow(self, store: Store) -> None:
        wanted = {store.ids[places].tobytes(): (name, places) for name, places in store.classes()}
        gone = [i for i, key in enumerate(self.keys) if key not in wanted]
        if gone:
            self.model.remove_rows([self.base + i for i in gone])
            self.keys = [key for key in self.keys if key in wanted]
        here = set(self.keys)
        new = [key for key in wanted if key not in here]
        if new:
            self.model.add_rows(class_rows(store, [wanted[key][1] for key in new], self.model))
            self.keys += new
        self.names = [wanted[key][0] for key in self.keys]
        if not self.base and isinstance(self.model.calibrator, Cosine):
            self.metric = metric_of(store)
            self.model.calibrator.metric = None if self.metric is None else self.metric.matrix.to(self.model.rows)


def class_rows(store: Store, classes: Sequence[NDArray[np.intp]], model: Model) -> Tensor:
    """float32 [classes, d] on the CPU"""
    counts = torch.tensor([len(places) for places in classes])
    rows = torch.arange(len(classes)).repeat_interleave(counts)
    everything = np.concatenate(classes)
    sums = torch.zeros(len(classes), store.embeddings.shape[1], dtype=torch.float64)
    for start in range(0, len(everything), AT_ONCE):
        here = slice(start, start + AT_ONCE)
        sums.index_add_(0, rows[here], torch.from_numpy(store.vectors(everything[here])))
    return as_prototypes((sums / counts[:, None]).float(), model)


def rows_without(store: Store, places: NDArray[np.intp], model: Model) -> Tensor:
    """The row of a class as it would be without each of its photos in turn: [n, d], n > 1."""
    vectors = store.vectors(places)
    means = (vectors.sum(0) - vectors) / (len(places) - 1)
    return as_prototypes(torch.from_numpy(means.astype(np.float32)), model)
