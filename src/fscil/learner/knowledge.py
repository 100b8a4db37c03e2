"""Knowledge: a model, what it was taught, and what was measured of that; shared by threads, and by processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fscil.errors import UserError
from fscil.learner.changes import Sample
from fscil.learner.confidence import Confidence, measure_confidence
from fscil.learner.embedding import Seen, samples_of
from fscil.learner.home import Home, Memory
from fscil.learner.leave_one_out import chosen, held_out
from fscil.learner.rows import Rows
from fscil.learner.store import Store
from fscil.learner.unknown import Unknown, measure_unknown
from fscil.model import Model
from fscil.pictures import decode_each

T = TypeVar("T")
AT_ONCE = 256  # pictures that are decoded before they are embedded


@dataclass(frozen=True)
class Columns:
    """The model's rows as classes: which of them may be answered, what they are called, and in which order."""

    visible: NDArray[np.bool_]  # [rows]
    names: list[str]  # [rows]; empty: forgotten
    order: NDArray[np.intp]  # rows that may be answered, by name

    @property
    def answers(self) -> list[str]:
        return [self.names[row] for row in self.order]


class Knowledge:
    """Every change is written before it is returned; every look sees what other processes wrote."""

    def __init__(self, model: Model, base: Sequence[str], folder: Path | None) -> None:
        self.model, self.base = model, tuple(base)
        self.lock = RLock()
        self.rows = Rows(model, len(base))
        self.home: Home = (
            Memory(model.row_size, self.base) if folder is None else Home(folder, model.row_size, self.base)
        )
        self.store = self.home.read(None)
        self.rows.follow(self.store)
        self._measured: tuple[Store, Confidence, Unknown] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For another process, as scikit-learn's n_jobs starts them; a lock cannot go there."""
        with self.lock:
            return {name: value for name, value in vars(self).items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.lock = RLock()

    def refresh(self) -> Store:
        with self.lock:
            store = self.home.read(self.store)
            if store is not self.store:
                self._set(store)
            return store

    def change(self, make: Callable[[Store], tuple[Store, T]]) -> T:
        """Replace the store by what `make` makes of the newest; nothing has happened if anything fails."""
        with self.lock, self.home.alone():
            self.refresh()
            store, result = make(self.store)
            if store is not self.store:
                self.home.write(store)
                self._set(store)
            return result

    def _set(self, store: Store) -> None:
        self.store = store
        self.rows.follow(store)

    def settle(self, folder: Path) -> None:
        """From now on the store lives in this folder, where it was written."""
        self.home = Home(folder, self.model.row_size, self.base)
        self._set(self.home.read(None))

    def columns(self) -> Columns:
        store = self.store
        names = [name or "" for name in store.base] + self.rows.names
        visible = np.array([bool(name) for name in names], bool)
        if store.hide_base:  # but for those that were taught photos
            visible[[row for row in range(len(store.base)) if row not in self.rows.turned]] = False
        order = np.array(sorted(np.flatnonzero(visible), key=lambda row: names[row]), np.intp)
        return Columns(visible, names, order)

    def measured(self) -> tuple[Confidence, Unknown]:
        with self.lock:
            store = self.refresh()
            if self._measured is None or self._measured[0] is not store:
                held = held_out(store, self.rows, chosen(store, self.model), self.columns().visible)
                self._measured = store, measure_confidence(held), measure_unknown(held)
            return self._measured[1:]

    def samples(
        self, images: Sequence[object], seen: Seen | None = None
    ) -> tuple[list[Sample], list[int], list[UserError]]:
        """What is kept of images; which of them those are; and what is wrong with the others."""
        samples: list[Sample] = []
        good: list[int] = []
        bad: list[UserError] = []
        for start in range(0, len(images), AT_ONCE):
            part = list(decode_each(images[start : start + AT_ONCE], self.model.spec.stored_size, start))
            read = [(start + i, each) for i, each in enumerate(part) if not isinstance(each, UserError)]
            bad += [each for each in part if isinstance(each, UserError)]
            tell = None if seen is None else partial(_tell, seen, start)
            samples += samples_of(self.model, [each for _, each in read], tell)
            good += [i for i, _ in read]
        return samples, good, bad

    def logits(self, embeddings: torch.Tensor) -> tuple[NDArray[np.float64], Columns]:
        """[n, classes that may be answered], in their order"""
        with self.lock:
            self.refresh()
            columns = self.columns()
            if not len(columns.order):
                raise UserError("no class was taught yet; teach one first")
            return self.model.classify(embeddings).cpu().double().numpy()[:, columns.order], columns


def _tell(seen: Seen, before: int, done: int) -> None:
    seen(before + done)
