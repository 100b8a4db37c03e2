"""classes.safetensors: a store as a file, whole or not at all, with a format version and a checksum. Never pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fscil.arrays import load_arrays, save_arrays
from fscil.errors import UserError
from fscil.learner.store import COLUMNS, Group, Step, Store
from fscil.model_facts import TAUGHT

FORMAT = 1  # increase it with any change that older versions of fscil cannot read
FILE = TAUGHT
KIND = "what a learner was taught"
REMEDY = "restore it from a copy, or delete it to forget all that was taught"
TYPES = dict(zip(COLUMNS, (np.float16, np.float32, np.int64, np.int8, np.int32, np.uint8), strict=True))


def write(folder: Path, store: Store, model: str) -> None:
    """model: the checksum of the model whose embeddings these are."""
    text = {
        "files": store.files,
        "names": store.names,
        "base": store.base,
        "hide_base": store.hide_base,
        "next_id": store.next_id,
        "history": [list(vars(step).values()) for step in store.history],
    }
    written = np.frombuffer(json.dumps(text, separators=(",", ":")).encode(), np.uint8)
    columns = {name: getattr(store, name) for name in COLUMNS}
    save_arrays(folder / FILE, {**columns, "text": written}, {"kind": KIND, "format": FORMAT, "model": model})


def read(folder: Path, model: str, dim: int, base: int) -> Store:
    """The store of a model with this checksum, this size of embeddings and this many base classes."""
    path = folder / FILE
    arrays, about = load_arrays(path, REMEDY)
    number = about.get("format")
    if about.get("kind") != KIND or type(number) is not int or number < 1:
        raise UserError(f"{path} does not hold what a learner was taught; {REMEDY}")
    if number > FORMAT:
        raise UserError(f"{path} was written by a newer fscil (format {number}); update fscil to read it")
    if about.get("model") != model:
        raise UserError(f"{path} was taught to another model than the one beside it; put that model's files back")
    try:
        text = json.loads(arrays["text"].tobytes())
        columns = {name: arrays[name] for name in COLUMNS}
        values: dict[str, Any] = {**columns, **text, **_plain(text)}
        store = Store(**values)
        check(store, dim, base)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise UserError(f"{path} is damaged ({' '.join(str(error).split())[:100]}); {REMEDY}") from error
    return store


def _plain(text: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of JSON as the tuples that a store has."""
    lists = {name: tuple(text[name]) for name in ("files", "names", "base")}
    return {**lists, "history": tuple(_step(*values) for values in text["history"])}


def _step(verb: str, when: str, what: str, before: Any, base_before: Any, hidden_before: bool | None) -> Step:
    groups: tuple[Group, ...] | None = None
    if before is not None:
        groups = tuple((role, name, tuple(ids)) for role, name, ids in before)
    return Step(verb, when, what, groups, None if base_before is None else tuple(base_before), hidden_before)


def check(store: Store, dim: int, base: int) -> None:
    """The checksum has vouched for the bytes; this is for files that someone else's program made."""
    n = len(store.files)
    shapes = {"embeddings": (n, dim), "hashes": (n, 32)}
    for name in COLUMNS:
        column = getattr(store, name)
        if column.dtype != TYPES[name] or column.shape != shapes.get(name, (n,)):
            raise ValueError(f"{name} is {column.dtype} {list(column.shape)}")
    if len(store.base) != base:
        raise ValueError(f"{len(store.base)} base classes, the model has {base}")
    if not (np.isfinite(store.embeddings).all() and np.isfinite(store.scales).all()):
        raise ValueError("embeddings are not finite")
    if not np.isin(store.roles, range(4)).all() or (n and (np.diff(store.ids) <= 0).any()):
        raise ValueError("photos are not numbered")
    ends = np.array([len(store.names), 0, base, 0])[store.roles]
    if (store.labels >= ends).any() or (store.labels[ends > 0] < 0).any():
        raise ValueError("labels without a class")
    if len(set(store.names)) != len(store.names):
        raise ValueError("two classes of one name")
