"""The verbs by which a learner is taught: each is written before it returns, and can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fscil.device import choose_device
from fscil.errors import UserError
from fscil.learner import changes
from fscil.learner.knowledge import Knowledge
from fscil.learner.lesson import Lesson, lesson_of, shown
from fscil.learner.names import UNKNOWN, check_name
from fscil.learner.photos import TaughtPhoto, find_photos, photo_list
from fscil.learner.sources import model_from_nothing
from fscil.learner.store import COUNTER, TAUGHT, WITNESS, Done, Store
from fscil.model import Model
from fscil.pictures import Picture, listed

Pictures = Picture | Sequence[Picture]


class Teachable:
    """What Learner can be taught; see there."""

    def __init__(self, encoder: str | PathLike[str] = "auto", *, device: str = "cpu") -> None:
        """encoder: auto (ImageNet's, for photos), embedded (for small images), timm:NAME, or a path: a model folder or
        a file of weights. Nothing is loaded before it is needed."""
        self.encoder, self.device = encoder, device
        self.folder: Path | None = None
        self._kept: Knowledge | None = None

    def _begin(self, model: Model, base: Sequence[str], folder: Path | None = None) -> Knowledge:
        self._kept = Knowledge(model.to(choose_device(self.device)), base, folder)
        self.folder = folder
        return self._kept

    @property
    def _knowledge(self) -> Knowledge:
        return self._kept or self._begin(model_from_nothing(self.encoder), ())

    def teach(self, name: str, images: Pictures, *, skip_unreadable: bool = False) -> Lesson:
        """Teach a class, new or known, from one photo up; the lesson says whether they are enough.

        skip_unreadable: go on without images that cannot be read, which the lesson then names.
        """
        name, knowledge = check_name(name), self._knowledge
        samples, _, bad = self._samples(images, skip_unreadable)
        with knowledge.lock:
            new = self._add("teach", [name] * len(samples), samples, TAUGHT)
            repeated = tuple(
                sample.file or "an image" for sample, is_new in zip(samples, new, strict=True) if not is_new
            )
            columns = knowledge.columns()
            told = tuple(str(error) for error in bad)
            store, rows = knowledge.store, knowledge.rows
            return lesson_of(store, rows, columns.visible, columns.names, name, sum(new), repeated, told)

    def teach_unknown(self, images: Pictures, *, skip_unreadable: bool = False) -> int:
        """Counter-examples, photos of none of the classes: what is nearer to one of them than to its best class is
        unknown. Returns how many were new."""
        samples, _, _ = self._samples(images, skip_unreadable)
        return sum(self._add("teach_unknown", [""] * len(samples), samples, COUNTER))

    def witness(self, name: str, images: Pictures, *, skip_unreadable: bool = False) -> int:
        """Photos of a base class that its training did not see: confidence and unknown are measured by them, too."""
        samples, _, _ = self._samples(images, skip_unreadable)
        return sum(self._add("witness", [check_name(name)] * len(samples), samples, WITNESS))

    def _samples(self, images: Pictures, skip: bool) -> tuple[list[changes.Sample], list[int], list[UserError]]:
        samples, good, bad = self._knowledge.samples(listed(images))
        if bad and (not skip or not samples):
            raise bad[0]
        if not samples:
            raise UserError("no images were given; give one or more")
        return samples, good, bad

    def _add(self, verb: str, names: list[str], samples: list[changes.Sample], role: int) -> list[bool]:
        def make(store: Store) -> tuple[Store, list[bool]]:
            for name in dict.fromkeys(names):
                if role == TAUGHT and name in store.base:
                    raise UserError(f"'{name}' is a base class; choose another name, or forget that class first")
                if role == WITNESS and name not in store.base:
                    raise UserError(f"'{name}' is not a base class; teach(name, images) teaches a class")
            return changes.add(store, verb, names, samples, role)

        return self._knowledge.change(make)

    def forget(self, name: str | None = None, *, photo: Picture | None = None) -> None:
        """Forget a class or a photo: given by path, by file name, by hash or as an image; of this class, if named."""
        size = self._knowledge.model.spec.stored_size
        if photo is None and name is None:
            raise UserError("name what to forget: a class, or photo=...")

        def make(store: Store) -> tuple[Store, None]:
            if photo is None:
                return changes.forget_class(store, check_name(name)), None
            places = find_photos(store, photo, name, size)
            return changes.forget_photos(store, places, photo_name(store, places)), None

        self._knowledge.change(make)

    def move(self, photo: Picture, to: str, *, name: str | None = None) -> None:
        """Move a photo, given as in `forget` (and of this class, if named), to another class, which may be new."""
        to, size = check_name(to), self._knowledge.model.spec.stored_size

        def make(store: Store) -> tuple[Store, None]:
            if to in store.base:
                raise UserError(f"'{to}' is a base class; choose another name, or forget that class first")
            places = find_photos(store, photo, name, size)
            return changes.move(store, places, to, photo_name(store, places)), None

        self._knowledge.change(make)

    def rename(self, name: str, to: str) -> None:
        """Give a class another name; if a taught class has it already, the two become one."""
        name, to = check_name(name), check_name(to)
        self._knowledge.change(lambda store: (changes.rename(store, name, to), None))

    def hide_base(self, hidden: bool = True) -> None:
        """Answer with taught classes alone, or with all again."""
        self._knowledge.change(lambda store: (changes.hide_base(store, hidden), None))

    def undo(self) -> Done:
        """Take the last step back, and then the one before; returns what it was."""
        return self._knowledge.change(changes.undo)

    def history(self) -> list[Done]:
        """What was done, the oldest first."""
        return [step.done for step in self._knowledge.refresh().history]

    def photos(self, name: str | None = None) -> list[TaughtPhoto]:
        return photo_list(self._knowledge.refresh(), name)


def photo_name(store: Store, places: NDArray[np.intp]) -> str:
    return ", ".join(f"{store.name_of(place) or UNKNOWN}: {shown(store, place)}" for place in places.tolist())
