"""Photos that were taught, and how a user names one of them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fscil.errors import UserError
from fscil.learner.lesson import shown
from fscil.learner.names import UNKNOWN
from fscil.learner.store import COUNTER, GONE, TAUGHT, WITNESS, Store
from fscil.naming import quotable
from fscil.pictures import decode_picture

ROLES = {TAUGHT: "taught", COUNTER: "counter-example", WITNESS: "witness"}
DIGITS = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True)
class TaughtPhoto:
    name: str  # of its class; `unknown` for a counter-example
    file: str
    sha256: str
    role: str  # taught, counter-example, or witness (of a base class)


def photo_list(store: Store, name: str | None) -> list[TaughtPhoto]:
    found = []
    for place in np.flatnonzero(store.roles != GONE).tolist():
        own = store.name_of(place) or UNKNOWN
        if name is None or own == name:
            role = ROLES[int(store.roles[place])]
            found.append(TaughtPhoto(own, store.files[place], store.hashes[place].tobytes().hex(), role))
    return found


def find_photos(store: Store, photo: object, name: str | None, size: int) -> NDArray[np.intp]:
    """The photo that is meant by a path, a file's name, the first digits of its hash, or an image; within a class."""
    kept = np.flatnonzero(store.roles != GONE)
    if name is not None:
        kept = np.array([place for place in kept.tolist() if (store.name_of(place) or UNKNOWN) == name], np.intp)
    named = os.fspath(photo) if isinstance(photo, str | os.PathLike) else None
    found: list[int] = []
    if named is None or os.path.isfile(named):
        digest = np.frombuffer(decode_picture(photo, size, "the photo").digest, np.uint8)
        found = kept[(store.hashes[kept] == digest).all(1)].tolist()
    if not found and named is not None:
        file = Path(named).name
        found = [place for place in kept.tolist() if file and store.files[place] == file]
    if not found and named is not None and DIGITS.fullmatch(named):
        found = [place for place in kept.tolist() if store.hashes[place].tobytes().hex().startswith(named)]
    if not found:
        within = f" of {name}" if name else ""
        shown_name = quotable(named) if named is not None else "this image"
        raise UserError(f"no photo{within} is {shown_name}; photos() lists them")
    if len(found) > 1:
        several = ", ".join(f"{store.name_of(p) or UNKNOWN}: {shown(store, p)}" for p in found[:3])
        raise UserError(f"{len(found)} photos could be meant ({several}); name the class, too, or give the file's hash")
    return np.array(found, np.intp)
