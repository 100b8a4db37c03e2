"""The verbs by which a learner is taught: each is written before it returns, and can be undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TypeVar

from fscil.device import choose_device
from fscil.errors import UserError
from fscil.learner import changes
from fscil.learner.editing import Editable
from fscil.learner.embedding import Seen
from fscil.learner.knowledge import Knowledge
from fscil.learner.lesson import Lesson, lesson_of
from fscil.learner.names import check_name
from fscil.learner.sources import model_from_nothing
from fscil.learner.store import COUNTER, TAUGHT, WITNESS, Store
from fscil.model import Model
from fscil.pictures import Picture, listed

Pictures = Picture | Sequence[Picture]
T = TypeVar("T")


class Teachable(Editable):
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

    def _change(self, make: Callable[[Store], tuple[Store, T]]) -> T:
        return self._knowledge.change(make)

    def _store(self) -> Store:
        return self._knowledge.refresh()

    @property
    def _stored_size(self) -> int:
        return self._knowledge.model.spec.stored_size

    def teach(
        self, name: str, images: Pictures, *, skip_unreadable: bool = False, progress: Seen | None = None
    ) -> Lesson:
        """Teach a class, new or known, from one photo up; the lesson says whether they are enough.

        skip_unreadable: go on without images that cannot be read, which the lesson then names. progress: is told how
        many images are done.
        """
        return self.teach_all({check_name(name): images}, skip_unreadable=skip_unreadable, progress=progress)[0]

    def teach_all(
        self, images: Mapping[str, Pictures], *, skip_unreadable: bool = False, progress: Seen | None = None
    ) -> list[Lesson]:
        """Teach several classes in one step: all of them or, if anything is wrong, none."""
        pairs = [(check_name(name), image) for name, several in images.items() for image in listed(several)]
        knowledge, names = self._knowledge, [name for name, _ in pairs]
        samples, good, bad = self._samples([image for _, image in pairs], skip_unreadable, progress)
        left_out = [names[i] for i in sorted({*range(len(names))} - {*good})]
        for name, error in zip(left_out, bad, strict=True):
            if name not in {names[i] for i in good}:
                raise error  # no photo of the class is left
        with knowledge.lock:
            new = self._add("teach", [names[i] for i in good], samples, TAUGHT)
            columns = knowledge.columns()
            store, rows = knowledge.store, knowledge.rows
            lessons = []
            for name in dict.fromkeys(names):
                own = [(each, is_new) for i, each, is_new in zip(good, samples, new, strict=True) if names[i] == name]
                repeated = tuple(sample.file or "an image" for sample, is_new in own if not is_new)
                told = tuple(str(error) for other, error in zip(left_out, bad, strict=True) if other == name)
                count = len(own) - len(repeated)
                lessons.append(lesson_of(store, rows, columns.visible, columns.names, name, count, repeated, told))
            return lessons

    def teach_unknown(self, images: Pictures, *, skip_unreadable: bool = False, progress: Seen | None = None) -> int:
        """Counter-examples, photos of none of the classes: what is nearer to one of them than to its best class is
        unknown. Returns how many were new."""
        samples, _, _ = self._samples(listed(images), skip_unreadable, progress)
        return sum(self._add("teach_unknown", [""] * len(samples), samples, COUNTER))

    def witness(self, name: str, images: Pictures, *, skip_unreadable: bool = False) -> int:
        """Photos of a base class that its training did not see: confidence and unknown are measured by them, too."""
        samples, _, _ = self._samples(listed(images), skip_unreadable)
        return sum(self._add("witness", [check_name(name)] * len(samples), samples, WITNESS))

    def _samples(
        self, images: Sequence[object], skip: bool, progress: Seen | None = None
    ) -> tuple[list[changes.Sample], list[int], list[UserError]]:
        samples, good, bad = self._knowledge.samples(images, progress)
        if bad and (not skip or not samples):
            raise bad[0]
        if not samples:
            raise UserError("no images were given; give one or more")
        return samples, good, bad

    def _add(self, verb: str, names: list[str], samples: list[changes.Sample], role: int) -> list[bool]:
        def make(store: Store) -> tuple[Store, list[bool]]:
            for name in dict.fromkeys(names):
                if role == WITNESS and name not in store.base:
                    raise UserError(f"'{name}' is not a base class; teach it instead")
            return changes.add(store, verb, names, samples, role)

        return self._knowledge.change(make)
