"""Where a learner's store lives: in a model folder, which one process changes at a time, or in memory alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fscil.errors import UserError
from fscil.learner import store_file
from fscil.learner.card import CARD, update_card
from fscil.learner.store import Store
from fscil.model_facts import model_checksum
from fscil.run_lock import HALF_WRITTEN, InUseError, RunLock

PATIENCE = 10.0  # seconds that a process waits for another one to finish teaching
PAUSE = 0.01

Stamp = tuple[int, int, int]  # of a file: which one it is, when it was written, its size


class Home:
    """A model folder. What `write` has returned from is there for good; `read` gives what others wrote, too."""

    def __init__(self, folder: Path, dim: int, base: tuple[str, ...]) -> None:
        self.folder, self.dim, self.base = folder, dim, base
        self.path = folder / store_file.FILE
        self.model = model_checksum(folder / "model.safetensors")
        self.stamp: Stamp | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else teaches meanwhile; waits a little for whoever does."""
        if not os.path.isfile(self.folder / "model.safetensors"):
            raise UserError(f"{self.folder} is no longer there; save the learner to a folder again")
        lock, end = RunLock(self.folder), time.monotonic() + PATIENCE
        while True:
            try:
                lock.take()
                break
            except InUseError as error:
                if time.monotonic() > end:
                    owner = str(error).partition(" is in use by ")[2].partition(";")[0]
                    raise UserError(f"{self.folder} is being taught by {owner}; try again when it is done") from None
            time.sleep(PAUSE)
        try:
            self._sweep()
            yield
        finally:
            lock.release()

    def read(self, known: Store | None) -> Store:
        """The store in the folder; the one that is known if nothing was written since."""
        for _ in range(3):  # it may be replaced between the two looks
            stamp = self._look()
            if known is not None and stamp == self.stamp:
                return known
            found = Store.empty(self.dim, self.base)
            if stamp is not None:
                found = store_file.read(self.folder, self.model, self.dim, len(self.base))
            if self._look() == stamp:
                break
        self.stamp = stamp
        return found

    def write(self, store: Store) -> None:
        store_file.write(self.folder, store, self.model)
        self.stamp = self._look()
        update_card(self.folder, store)

    def _look(self) -> Stamp | None:
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{self.path} cannot be read ({error.strerror}); check its permissions") from error
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _sweep(self) -> None:
        """Remove what a process that was killed has left half-written."""
        with suppress(OSError):
            for path in self.folder.iterdir():
                found = HALF_WRITTEN.fullmatch(path.name)
                if found and found["name"] in (self.path.name, CARD):
                    path.unlink(missing_ok=True)


class Memory(Home):
    """No folder: for a learner that was not saved yet."""

    def __init__(self, dim: int, base: tuple[str, ...]) -> None:
        self.dim, self.base = dim, base

    @contextmanager
    def alone(self) -> Iterator[None]:
        yield

    def read(self, known: Store | None) -> Store:
        return Store.empty(self.dim, self.base) if known is None else known

    def write(self, store: Store) -> None:
        pass
