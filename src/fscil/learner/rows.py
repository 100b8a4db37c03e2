"""Classifier rows from kept embeddings: Eq. (prototype), the mean embedding of a class's photos."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fscil.calibrators import Cosine
from fscil.learner.metric import Metric, metric_of
from fscil.learner.store import Store
from fscil.model import Model, as_prototypes

AT_ONCE = 8192  # photos that are summed together, in float64
TRAINING = 10.0  # photos that the training of a base class counts as, beside those that it is taught


class Rows:
    """Keeps a model's rows as the store says: those of base classes, then one for each other class that was taught.

    The row of a base class turns towards the photos that it is taught. A model without base classes gets a metric by
    its photos, too. `keys` are the photos of every taught row; a row is computed only if its photos have changed.
    """

    def __init__(self, model: Model, base: int) -> None:
        self.model, self.base = model, base
        self.trained = model.rows[:base].detach().clone()
        self.turned: dict[int, bytes] = {}  # base classes that were taught photos, and which
        self.keys: list[bytes] = []
        self.names: list[str] = []  # of taught rows
        self.metric: Metric | None = None

    def follow(self, store: Store) -> None:
        base = {name: row for row, name in enumerate(store.base) if name is not None}
        wanted, of_base = {}, {}
        for name, places in store.classes():
            key = store.ids[places].tobytes()
            if name in base:
                of_base[base[name]] = key, places
            else:
                wanted[key] = name, places
        self._turn(store, of_base)
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

    def columns(self, store: Store) -> dict[str, int]:
        """Where the row of a class is, by its name."""
        found = {name: self.base + i for i, name in enumerate(self.names)}
        return {**found, **{name: i for i, name in enumerate(store.base) if name is not None}}

    def _turn(self, store: Store, taught: dict[int, tuple[bytes, NDArray[np.intp]]]) -> None:
        keys = {row: key for row, (key, _) in taught.items()}
        if keys == self.turned:
            return
        rows = self.model.rows.detach().clone()
        rows[: self.base] = self.trained
        for row, (_, places) in taught.items():
            sums, counts = store.vectors(places).sum(0, keepdims=True), np.array([len(places)])
            rows[row] = turned(self.trained[row], sums, counts, self.model)[0]
        self.model.set_rows(rows)
        self.turned = keys


def turned(row: Tensor, sums: NDArray[np.float64], counts: NDArray[np.intp], model: Model) -> Tensor:
    """A base class's row [d] with the photos of each of n sums [n, d]: their directions' mean, and the row's length."""
    width = row.shape[0] // 2 if model.calibrator.two_inputs else row.shape[0]  # a trained row stays as it is
    own, means = row[:width].double().cpu(), torch.from_numpy(sums[:, :width] / np.maximum(counts, 1)[:, None])
    weights = torch.from_numpy(counts.astype(np.float64))[:, None]
    towards = TRAINING * F.normalize(own, dim=0) + weights * F.normalize(means, dim=1)
    found = row.repeat(len(sums), 1)
    found[:, :width] = (own.norm() * F.normalize(towards, dim=1)).to(row)
    return found


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


def rows_without(store: Store, places: NDArray[np.intp], rows: Rows) -> Tensor:
    """The row of a class as it would be without each of its photos in turn: [n, d]; a base class may have one only."""
    vectors, name = store.vectors(places), store.name_of(int(places[0]))
    sums = vectors.sum(0) - vectors
    if name in store.base:
        counts = np.full(len(places), len(places) - 1)
        return turned(rows.trained[store.base.index(name)], sums, counts, rows.model).cpu()
    means = sums / (len(places) - 1)
    return as_prototypes(torch.from_numpy(means.astype(np.float32)), rows.model)
