"""The verbs that change what was taught without looking at a new photo: each is written before it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from fscil.errors import UserError
from fscil.learner import changes
from fscil.learner.names import UNKNOWN, check_name
from fscil.learner.photos import TaughtPhoto, find_photos, photo_list
from fscil.learner.store import Done, Store, shown

if TYPE_CHECKING:
    from fscil.pictures import Picture

T = TypeVar("T")


class Editable(ABC):
    """What a learner and a model folder that was taught have in common; none of it needs torch."""

    @abstractmethod
    def _change(self, make: Callable[[Store], tuple[Store, T]]) -> T:
        """Replace the store by what `make` makes of the newest; nothing has happened if anything fails."""

    @abstractmethod
    def _store(self) -> Store:
        """The newest store."""

    @property
    @abstractmethod
    def _stored_size(self) -> int:
        """Pixels a side to which images are resized."""

    def forget(self, name: str | None = None, *, photo: Picture | None = None) -> None:
        """Forget a class or a photo: given by path, by file name, by hash or as an image; of this class, if named."""
        size = self._stored_size
        if photo is None and name is None:
            raise UserError("name what to forget: a class, or photo=...")

        def make(store: Store) -> tuple[Store, None]:
            if photo is None:
                return changes.forget_class(store, check_name(name)), None
            places = find_photos(store, photo, name, size)
            return changes.forget_photos(store, places, photo_name(store, places)), None

        self._change(make)

    def move(self, photo: Picture, to: str, *, name: str | None = None) -> None:
        """Move a photo, given as in `forget` (and of this class, if named), to another class, which may be new."""
        to, size = check_name(to), self._stored_size

        def make(store: Store) -> tuple[Store, None]:
            places = find_photos(store, photo, name, size)
            return changes.move(store, places, to, photo_name(store, places)), None

        self._change(make)

    def rename(self, name: str, to: str) -> None:
        """Give a class another name; one that was only taught may get that of another class, and becomes part of it."""
        name, to = check_name(name), check_name(to)
        self._change(lambda store: (changes.rename(store, name, to), None))

    def hide_base(self, hidden: bool = True) -> None:
        """Answer with taught classes alone, or with all again."""
        self._change(lambda store: (changes.hide_base(store, hidden), None))

    def undo(self) -> Done:
        """Take the last step back, and then the one before; returns what it was."""
        return self._change(changes.undo)

    def history(self) -> list[Done]:
        """What was done, the oldest first."""
        return [step.done for step in self._store().history]

    def photos(self, name: str | None = None) -> list[TaughtPhoto]:
        return photo_list(self._store(), name)


def photo_name(store: Store, places: NDArray[np.intp]) -> str:
    return ", ".join(f"{store.name_of(place) or UNKNOWN}: {shown(store, place)}" for place in places.tolist())
