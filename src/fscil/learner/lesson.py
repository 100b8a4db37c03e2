"""Lesson: what teaching a class has brought, and whether its photos are enough."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fscil.learner.leave_one_out import held_out
from fscil.learner.names import UNKNOWN
from fscil.learner.rows import Rows
from fscil.learner.sentences import sentences_of
from fscil.learner.store import COUNTER, GONE, TAUGHT, Store, shown, unit

NEAR = 5e-3  # 1 - cosine of embeddings below which photos are taken for copies: resized ones measure 4e-4, others 3e-2
UNLIKE = 2.0  # times the median distance from the others' mean, beyond which a photo is unlike its fellows
FELLOWS = 4  # photos that a class needs before one of them can be called unlike the others
MOST_NAMED = 10  # photos that a lesson lists of a kind
MOST_COMPARED = 500  # of a class's photos, with all others


@dataclass(frozen=True)
class Pair:
    """Two photos by their file names, and the cosine of their embeddings."""

    photo: str
    other: str
    other_class: str
    cosine: float


@dataclass(frozen=True)
class Lesson:
    name: str
    base: bool  # whether training knew the class already
    new: int  # photos that this lesson has added
    photos: int  # that it was taught in all
    classes: int  # that can be answered
    accuracy: float | None  # share of its photos that are recognised when they are left out; None: one photo
    rival: str | None  # the nearest other class
    closest: Pair | None  # of its photos and the rival's, where those are kept
    repeated: tuple[str, ...]  # given, but taught to this class already
    near_duplicates: tuple[Pair, ...]  # different files that look the same to the encoder, within the class
    two_names: tuple[Pair, ...]  # photos that another class has, too, or nearly so
    unlike: tuple[str, ...]  # photos far from the others of the class
    mistaken: tuple[tuple[str, str], ...]  # photos that would be taken for another class, and which
    median_photos: float | None  # of the other taught classes
    unreadable: tuple[str, ...]  # why images were left out
    sentences: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return " ".join(self.sentences)


@dataclass(frozen=True)
class Look:
    """A class's photos beside all others."""

    closest: Pair | None
    near_duplicates: tuple[Pair, ...]
    two_names: tuple[Pair, ...]
    unlike: tuple[str, ...]


def look(store: Store, name: str, rival: str | None, dim: int) -> Look:
    places = store.of_class(name)[:MOST_COMPARED]
    own = store.directions(places, dim)
    others = np.flatnonzero((store.roles != GONE) & ~np.isin(np.arange(len(store)), store.of_class(name)))
    duplicates = _near(store, own @ own.T - 2 * np.tri(len(own), dtype=np.float32), places, places)
    two_names: list[Pair] = []
    for part in np.array_split(others, max(1, -(-len(others) // 8192))):
        cosines = own @ store.directions(part, dim).T
        same = _first_bytes(store, places)[:, None] == _first_bytes(store, part)
        two_names += _near(store, np.where(same, 1, cosines), places, part)
    closest = None
    if rival is not None and len(theirs := _photos_of(store, rival)):
        cosines = own @ store.directions(theirs, dim).T
        mine, other = np.unravel_index(cosines.argmax(), cosines.shape)
        closest = _pair(store, int(places[mine]), int(theirs[other]), float(cosines[mine, other]))
    return Look(closest, tuple(duplicates[:MOST_NAMED]), tuple(two_names[:MOST_NAMED]), _unlike(store, own, places))


def _first_bytes(store: Store, places: NDArray[np.intp]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(store.hashes[places, :8]).view(np.uint64).ravel()


def _photos_of(store: Store, name: str) -> NDArray[np.intp]:
    kept = np.flatnonzero((store.roles != GONE) & (store.roles != COUNTER))
    labels = store.names.index(name) if name in store.names else store.base.index(name)
    return kept[(store.labels[kept] == labels) & ((store.roles[kept] == TAUGHT) == (name in store.names))]


def _near(store: Store, cosines: NDArray[np.float32], mine: NDArray[np.intp], theirs: NDArray[np.intp]) -> list[Pair]:
    found = np.argwhere(cosines > 1 - NEAR)[:MOST_NAMED]
    return [_pair(store, int(mine[i]), int(theirs[j]), min(1.0, float(cosines[i, j]))) for i, j in found]


def _pair(store: Store, mine: int, other: int, cosine: float) -> Pair:
    return Pair(shown(store, mine), shown(store, other), store.name_of(other) or UNKNOWN, round(cosine, 6))


def _unlike(store: Store, own: NDArray[np.float32], places: NDArray[np.intp]) -> tuple[str, ...]:
    if len(own) < FELLOWS:
        return ()
    rest = (own.sum(0) - own).astype(np.float64)
    distances = 1 - (own * rest).sum(1) / np.maximum(np.linalg.norm(rest, axis=1), 1e-12)
    far = np.flatnonzero(distances > UNLIKE * np.median(distances) + NEAR)
    return tuple(shown(store, int(places[i])) for i in far[np.argsort(-distances[far])][:MOST_NAMED])


def lesson_of(
    store: Store,
    rows: Rows,
    columns: NDArray[np.bool_],
    column_names: list[str],
    name: str,
    new: int,
    repeated: tuple[str, ...],
    unreadable: tuple[str, ...],
) -> Lesson:
    """The lesson of a class that the store and the rows have already."""
    places = store.of_class(name)
    held = held_out(store, rows, places[:MOST_COMPARED], columns)
    answers = held.logits.argmax(1)
    right = answers == held.own
    known, several = held.known, columns.sum() > 1
    accuracy = float(right[known].mean()) if known.any() and several else None
    wrong = np.flatnonzero(~right & known) if several else np.empty(0, np.intp)
    mistaken = tuple((shown(store, int(places[i])), column_names[answers[i]]) for i in wrong[:MOST_NAMED])
    rival = _rival(rows, columns, column_names, rows.columns(store)[name])
    seen = look(store, name, rival, rows.model.encoder.dim)
    counts = np.bincount(store.labels[store.roles == TAUGHT], minlength=len(store.names))
    others = np.delete(counts, store.names.index(name))
    median = float(np.median(others)) if len(others) else None
    facts = Lesson(
        name, name in store.base, new, len(places), int(columns.sum()), accuracy, rival, seen.closest, repeated,
        seen.near_duplicates, seen.two_names, seen.unlike, mistaken, median, unreadable, (),
    )  # fmt: skip
    return Lesson(**{**vars(facts), "sentences": sentences_of(facts)})


def _rival(rows: Rows, columns: NDArray[np.bool_], column_names: list[str], own: int) -> str | None:
    """The class whose row points most nearly the same way."""
    everything = unit(rows.model.rows[:, : rows.model.encoder.dim].cpu().numpy())
    cosines = np.where(columns, everything @ everything[own], -np.inf)
    cosines[own] = -np.inf
    best = int(cosines.argmax())
    return column_names[best] if np.isfinite(cosines[best]) else None
