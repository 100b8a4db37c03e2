"""Photos that were taught, and how a user names one of them."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fscil.errors import UserError
from fscil.files import read_regular
from fscil.learner.names import UNKNOWN
from fscil.learner.store import COUNTER, GONE, TAUGHT, WITNESS, Store, shown
from fscil.naming import quotable

ROLES = {TAUGHT: "taught", COUNTER: "counter-example", WITNESS: "witness"}
MOST_BYTES = 2**31  # of a photo
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
        digest = np.frombuffer(_digest(photo, named, size), np.uint8)
        found = kept[(store.hashes[kept] == digest).all(1)].tolist()
    if not found and named is not None:
        file = Path(named).name
        found = [place for place in kept.tolist() if file and store.files[place] == file]
    if not found and named is not None and DIGITS.fullmatch(named):
        found = [place for place in kept.tolist() if store.hashes[place].tobytes().hex().startswith(named)]
    if not found:
        within = f" of {name}" if name else ""
        shown_name = quotable(named) if named is not None else "this image"
        raise UserError(
            f"no photo{within} is {shown_name}; `fscil classes MODEL CLASS`, or photos() in Python, lists them"
        )
    if len(found) > 1:
        several = ", ".join(f"{store.name_of(p) or UNKNOWN}: {shown(store, p)}" for p in found[:3])
        raise UserError(f"{len(found)} photos could be meant ({several}); name the class, too, or give the file's hash")
    return np.array(found, np.intp)


def _digest(photo: object, named: str | None, size: int) -> bytes:
    """Of a file its bytes' hash, for which it need not be decoded."""
    if named is None:
        from fscil.pictures import decode_picture  # torch

        return decode_picture(photo, size, "the photo").digest
    try:
        return hashlib.sha256(read_regular(Path(named), MOST_BYTES)).digest()
    except OSError as error:
        raise UserError(f"{named} cannot be read ({error.strerror}); check the file and its permissions") from error
