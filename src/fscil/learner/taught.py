"""Taught: what a model folder knows, without its model, and so without torch. It can be looked at and corrected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeVar

from fscil.errors import UserError
from fscil.learner.editing import Editable
from fscil.learner.home import Home
from fscil.learner.store import COUNTER, WITNESS, Store
from fscil.model_facts import REMEDY, model_folder_of, model_header, read_facts

T = TypeVar("T")


@dataclass(frozen=True)
class KnownClass:
    name: str
    photos: int  # that were taught; of a base class also those that measure how well it is known
    base: bool
    hidden: bool


class Taught(Editable):
    """The verbs of Learner that need no model, on a model folder or the run folder around it."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = model_folder_of(Path(folder))
        facts = read_facts(self.folder / "config.json")
        path = self.folder / "model.safetensors"
        try:
            dim = int(model_header(path)["rows"]["shape"][1])
            self._size = int(facts["model"]["stored_size"])
        except (LookupError, TypeError, ValueError) as error:
            raise UserError(f"the files of {self.folder} do not fit together; {REMEDY}") from error
        self.home = Home(self.folder, dim, tuple(facts["class_names"]))

    def _change(self, make: Callable[[Store], tuple[Store, T]]) -> T:
        with self.home.alone():
            before = self.home.read(None)
            store, result = make(before)
            if store is not before:
                self.home.write(store)
            return result

    def _store(self) -> Store:
        return self.home.read(None)

    @property
    def _stored_size(self) -> int:
        return self._size

    def classes(self) -> list[KnownClass]:
        """Base classes first, then those that were only taught, in order of arrival."""
        store = self._store()
        witnesses = store.labels[store.roles == WITNESS].tolist()
        taught = {name: len(places) for name, places in store.classes()}
        base = [
            KnownClass(name, witnesses.count(i) + taught.get(name, 0), True, store.hide_base and name not in taught)
            for i, name in enumerate(store.base)
            if name is not None
        ]
        names = {each.name for each in base}
        return [*base, *(KnownClass(name, n, False, False) for name, n in taught.items() if name not in names)]

    def counter_examples(self) -> int:
        """Photos that were taught as belonging to no class."""
        return len(self._store().with_role(COUNTER))
