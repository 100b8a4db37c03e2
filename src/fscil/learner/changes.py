"""What can be done to a store. Every function returns a new one, with a step that says so and can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fscil.errors import UserError
from fscil.learner.store import GONE, TAUGHT, WITNESS, Done, Group, Step, Store, rounded, tidied
from fscil.naming import choose


@dataclass(frozen=True)
class Sample:
    """A photo to be taught: its embedding float32 [d], and what identifies it."""

    embedding: NDArray[np.float32]
    digest: bytes
    file: str


def add(
    store: Store, verb: str, names: Sequence[str], samples: Sequence[Sample], role: int = TAUGHT
) -> tuple[Store, list[bool]]:
    """Photos and their classes' names, one name each (empty for counter-examples); returns which of them were new.

    A photo that its class has already, by its hash, does not count twice.
    """
    present = {(int(store.roles[p]), store.name_of(p), store.hashes[p].tobytes()) for p in _alike(store, samples)}
    new = []
    for name, sample in zip(names, samples, strict=True):
        key = (role, name, sample.digest)
        new.append(key not in present)
        present.add(key)
    fresh = [(name, sample) for name, sample, is_new in zip(names, samples, new, strict=True) if is_new]
    if not fresh:
        return store, new
    known = list(store.names)
    if role == TAUGHT:
        known += [name for name in dict.fromkeys(name for name, _ in fresh) if name not in set(known)]
    places = {name: i for i, name in enumerate(known if role == TAUGHT else store.base) if name is not None}
    hashes = np.frombuffer(b"".join(sample.digest for _, sample in fresh), np.uint8).reshape(-1, 32)
    halves, scales = rounded(np.stack([sample.embedding for _, sample in fresh]))
    ids = np.arange(store.next_id, store.next_id + len(fresh))
    what = ", ".join(f"{name}: " * bool(name) + f"{n}" for name, n in _counts([name for name, _ in fresh]))
    return _stepped(
        store,
        verb,
        what,
        before=((GONE, "", tuple(ids.tolist())),),
        embeddings=np.concatenate([store.embeddings, halves]),
        scales=np.concatenate([store.scales, scales]),
        ids=np.concatenate([store.ids, ids]),
        roles=np.concatenate([store.roles, np.full(len(fresh), role, np.int8)]),
        labels=np.concatenate([store.labels, np.array([places.get(name, -1) for name, _ in fresh], np.int32)]),
        hashes=np.concatenate([store.hashes, hashes]),
        files=(*store.files, *(sample.file for _, sample in fresh)),
        names=tuple(known),
        next_id=store.next_id + len(fresh),
    ), new  # fmt: skip


def _alike(store: Store, samples: Sequence[Sample]) -> list[int]:
    """Photos that share their hash's first bytes with a sample."""
    first = np.ascontiguousarray(store.hashes[:, :8]).view(np.uint64).ravel()
    wanted = np.frombuffer(b"".join(sample.digest[:8] for sample in samples), np.uint64)
    return np.flatnonzero(np.isin(first, wanted)).tolist()


def _counts(names: Sequence[str], most: int = 5) -> list[tuple[str, str]]:
    """Photos of each class, in words."""
    counted = {name: names.count(name) for name in list(dict.fromkeys(names))[:most]}
    parts = [(name, f"{n} photo{'s' * (n > 1)}") for name, n in counted.items()]
    rest = len(dict.fromkeys(names)) - len(counted)
    return [*parts, ("", f"and {rest} more classes")] if rest else parts


def forget_class(store: Store, name: str) -> Store:
    """A class goes with the photos that it was taught; of a base class the row stays, unused."""
    choose(name, all_names(store), "class")
    places = store.of_class(name)
    if name not in store.base:
        return _assigned(store, "forget", name, places, GONE, -1)
    base = tuple(None if each == name else each for each in store.base)
    return _assigned(store, "forget", name, places, GONE, -1, base_before=store.base, base=base)


def forget_photos(store: Store, places: NDArray[np.intp], what: str) -> Store:
    return _assigned(store, "forget", what, places, GONE, -1)


def move(store: Store, places: NDArray[np.intp], to: str, what: str) -> Store:
    """Photos to another class, which may be new; one that is there already is not kept twice."""
    store = replace(store, names=store.names if to in store.names else (*store.names, to))
    places = places[~((store.roles[places] == TAUGHT) & (store.labels[places] == store.names.index(to)))]
    seen, twice = {store.hashes[place].tobytes() for place in store.of_class(to).tolist()}, []
    for place in places.tolist():
        twice.append(store.hashes[place].tobytes() in seen)
        seen.add(store.hashes[place].tobytes())
    before = store.groups(places)
    roles, labels = store.roles.copy(), store.labels.copy()
    roles[places], labels[places] = np.where(twice, GONE, TAUGHT), np.where(twice, -1, store.names.index(to))
    return _stepped(store, "move", f"{what} to {to}", before=before, roles=roles, labels=labels)


def rename(store: Store, old: str, new: str) -> Store:
    """A new name. A class that was only taught may get that of another one: then the two become one."""
    choose(old, all_names(store), "class")
    places, what = store.of_class(old), f"{old} to {new}"
    names = tuple(new if each == old else each for each in store.names)
    if old in store.base:
        if new in all_names(store):
            raise UserError(f"'{new}' is a class already; choose another name, or forget that class first")
        base = tuple(new if each == old else each for each in store.base)
        before = store.groups(places)
        return _stepped(store, "rename", what, before=before, base_before=store.base, base=base, names=names)
    if new in store.names:
        return _renamed_step(move(store, places, new, old), what)
    return _stepped(store, "rename", what, before=store.groups(places), names=names)


def _renamed_step(store: Store, what: str) -> Store:
    *earlier, last = store.history
    return replace(store, history=(*earlier, replace(last, verb="rename", what=what)))


def hide_base(store: Store, hidden: bool) -> Store:
    return _stepped(
        store, "hide_base", "yes" if hidden else "no", hidden_before=store.hide_base, hide_base=hidden
    )  # fmt: skip


def undo(store: Store) -> tuple[Store, Done]:
    """The store before its last step, and that step."""
    if not store.history:
        raise UserError("there is nothing to undo; history lists what was done")
    *earlier, last = store.history
    if last.before is None:
        raise UserError(f"the last step, {last.verb} of {last.when}, is too long ago to be undone")
    names, roles, labels = list(store.names), store.roles.copy(), store.labels.copy()
    base = store.base if last.base_before is None else last.base_before
    for role, name, ids in last.before:
        places = np.searchsorted(store.ids, ids)
        roles[places], labels[places] = role, -1
        if role == TAUGHT and name not in names:
            names.append(name)
        if role in (TAUGHT, WITNESS):
            labels[places] = names.index(name) if role == TAUGHT else int(name)
    hidden = store.hide_base if last.hidden_before is None else last.hidden_before
    changed: dict[str, Any] = {"names": tuple(names), "base": base, "hide_base": hidden}
    return tidied(replace(store, roles=roles, labels=labels, history=tuple(earlier), **changed)), last.done


def all_names(store: Store) -> list[str]:
    """Of base classes, then of the others."""
    base = [name for name in store.base if name is not None]
    return list(dict.fromkeys([*base, *store.names]))  # a base class may have been taught, too


def _assigned(
    store: Store, verb: str, what: str, places: NDArray[np.intp], role: int, label: int, **more: Any
) -> Store:
    roles, labels = store.roles.copy(), store.labels.copy()
    roles[places], labels[places] = role, label
    return _stepped(store, verb, what, before=store.groups(places), roles=roles, labels=labels, **more)


def _stepped(
    store: Store,
    verb: str,
    what: str,
    before: tuple[Group, ...] = (),
    base_before: tuple[str | None, ...] | None = None,
    hidden_before: bool | None = None,
    **changed: Any,
) -> Store:
    when = datetime.now(UTC).isoformat(timespec="seconds")
    step = Step(verb, when, what, before, base_before, hidden_before)
    return tidied(replace(store, **changed, history=(*store.history, step)))
