"""Store: all that was taught, photo by photo, as classes.safetensors holds it. Every change makes a new store.

Embeddings are kept in half precision, each divided by a power of two, so that no encoder's are too large or too small.
Sums of such numbers are exact in float64: a class's mean does not depend on the order in which its photos came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

TAUGHT, COUNTER, WITNESS, GONE = range(4)  # what a photo is to the learner
UNDOABLE = 20  # steps that can be undone; what they removed is kept for them
REMEMBERED = 1000  # steps of the history

Group = tuple[
    int, str, tuple[int, ...]
]  # photos by id with this role and class (of witnesses, the base class's number)


@dataclass(frozen=True)
class Done:
    """A step as users see it."""

    verb: str
    when: str  # UTC
    what: str
    undoable: bool


@dataclass(frozen=True)
class Step:
    """One change of what is known: its verb, when it was (UTC), and what it was about."""

    verb: str
    when: str
    what: str
    before: tuple[Group, ...] | None = None  # what the photos it changed were before; None: too long ago to undo
    base_before: tuple[str | None, ...] | None = None  # names of base classes, if it changed them
    hidden_before: bool | None = None

    @property
    def done(self) -> Done:
        return Done(self.verb, self.when, self.what, self.before is not None)


@dataclass(frozen=True)
class Store:
    """n photos; a class exists as long as a photo of it does.

    A photo is taught (of a class), a counter-example (of none), a witness (of a base class: it measures how well the
    model does and changes no row), or gone (kept until no step can bring it back).
    """

    embeddings: NDArray[np.float16]  # [n, d]
    scales: NDArray[np.float32]  # [n], by which embeddings are multiplied
    ids: NDArray[np.int64]  # [n], rising; never used again
    roles: NDArray[np.int8]  # [n]
    labels: NDArray[np.int32]  # [n], of taught photos into names, of witnesses into base, otherwise -1
    hashes: NDArray[np.uint8]  # [n, 32], SHA-256
    files: tuple[str, ...]  # names without folders
    names: tuple[str, ...] = ()  # of taught classes, in order of arrival
    base: tuple[str | None, ...] = ()  # base classes by their names now; None: forgotten
    hide_base: bool = False
    next_id: int = 0
    history: tuple[Step, ...] = field(default=())

    @classmethod
    def empty(cls, dim: int, base: Sequence[str] = ()) -> Store:
        return cls(
            np.empty((0, dim), np.float16), np.empty(0, np.float32), np.empty(0, np.int64), np.empty(0, np.int8),
            np.empty(0, np.int32), np.empty((0, 32), np.uint8), (), base=tuple(base),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.ids)

    def of_class(self, name: str) -> NDArray[np.intp]:
        """Places of a taught class's photos."""
        if name not in self.names:
            return np.empty(0, np.intp)
        return np.flatnonzero((self.roles == TAUGHT) & (self.labels == self.names.index(name)))

    def with_role(self, role: int) -> NDArray[np.intp]:
        return np.flatnonzero(self.roles == role)

    def name_of(self, place: int) -> str:
        """The class of a photo; empty for counter-examples and photos that are gone."""
        role, label = int(self.roles[place]), int(self.labels[place])
        if role == TAUGHT:
            return self.names[label]
        return (self.base[label] or "") if role == WITNESS else ""

    def vectors(self, places: NDArray[np.intp] | slice = slice(None)) -> NDArray[np.float64]:
        """Embeddings as they were rounded, float64 [n, d]."""
        scales = self.scales[places].astype(np.float64)
        return self.embeddings[places].astype(np.float64) * scales[:, None]

    def directions(self, places: NDArray[np.intp], dim: int) -> NDArray[np.float32]:
        """Embeddings of length 1, float32 [n, dim], without features that some calibrators use beside them."""
        return unit(self.embeddings[places, :dim].astype(np.float32))

    def groups(self, places: NDArray[np.intp]) -> tuple[Group, ...]:
        """What these photos are now."""
        found: dict[tuple[int, str], list[int]] = {}
        for place in places.tolist():
            role = int(self.roles[place])
            name = str(self.labels[place]) if role == WITNESS else self.name_of(place)
            found.setdefault((role, name), []).append(int(self.ids[place]))
        return tuple((role, name, tuple(ids)) for (role, name), ids in found.items())

    def classes(self) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Every taught class and the places of its photos, in order of their hashes."""
        taught = self.with_role(TAUGHT)
        order = taught[np.lexsort((*self.hashes[taught, :8].T[::-1], self.labels[taught]))]
        ends = np.cumsum(np.bincount(self.labels[order], minlength=len(self.names))).tolist()
        for name, start, end in zip(self.names, [0, *ends][:-1], ends, strict=True):
            yield name, order[start:end]


def shown(store: Store, place: int) -> str:
    """A photo as a person would recognise it."""
    return store.files[place] or f"image {store.hashes[place].tobytes().hex()[:8]}"


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows [n, d] divided by their lengths."""
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    return vectors / np.maximum(lengths, np.float32(1e-12))[:, None]


def rounded(embeddings: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.float32]]:
    """Embeddings [n, d] in half precision, and their scales [n]: the largest number of each lies in [1/2, 1)."""
    largest = np.abs(embeddings).max(axis=1, initial=np.finfo(np.float32).tiny)
    scales = np.ldexp(np.float32(1), np.frexp(largest)[1]).astype(np.float32)
    return (embeddings / scales[:, None]).astype(np.float16), scales


def tidied(store: Store) -> Store:
    """Drop photos that no step can bring back, names without photos, and what is too old in the history."""
    first = len(store.history) - UNDOABLE
    history = tuple(
        step if i >= first else replace(step, before=None, base_before=None, hidden_before=None)
        for i, step in enumerate(store.history)
    )[-REMEMBERED:]
    wanted = {i for step in history for role, _, ids in step.before or () if role != GONE for i in ids}
    stay = (store.roles != GONE) | np.isin(store.ids, np.array(sorted(wanted), np.int64))
    if not stay.all():
        store = replace(
            store,
            **{name: getattr(store, name)[stay] for name in COLUMNS},
            files=tuple(file for file, stays in zip(store.files, stay.tolist(), strict=True) if stays),
        )
    taught = store.roles == TAUGHT
    alive = np.bincount(store.labels[taught], minlength=len(store.names)) > 0
    if not alive.all():
        labels = np.where(taught, (np.cumsum(alive) - 1)[np.where(taught, store.labels, 0)], store.labels)
        names = tuple(name for name, lives in zip(store.names, alive.tolist(), strict=True) if lives)
        store = replace(store, labels=labels.astype(np.int32), names=names)
    return replace(store, history=history)


COLUMNS = ("embeddings", "scales", "ids", "roles", "labels", "hashes")
