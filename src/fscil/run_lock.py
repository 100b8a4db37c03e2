"""A run folder belongs to one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fscil.errors import UserError

NAME = ".lock"
FILES = ("config.toml", "metrics.jsonl", "result.json", "predictions.safetensors", "curve.png", "report.html")
HALF_WRITTEN = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.part")  # by files.write_atomically


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Rank 0 holds the folder's lock for all ranks; a folder that another process holds is refused."""
    from fscil import distributed  # torch; a lock alone needs none

    lock = RunLock(folder)
    distributed.broadcast(lock.take)
    try:
        yield
    finally:
        lock.release()


class InUseError(UserError):
    """Another process holds the folder."""


class RunLock:
    """Held until it is released or its process dies, in whatever way: then the system releases it.

    Folders that were made for it are removed again if nothing was put into them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / NAME
        self.handle: int | None = None
        self.made: list[Path] = []

    def take(self) -> None:
        try:
            self.made = make_folders(self.folder)
            self.handle = self._locked()
        except (OSError, ValueError) as error:  # ValueError: a null character in the name
            self._remove_made()
            reason = error.strerror if isinstance(error, OSError) else error
            raise UserError(
                f"{self.folder} cannot be used as a run folder ({reason}); choose a folder you may write to"
            ) from error
        sweep(self.folder)

    def _locked(self) -> int:
        while True:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise UserError(f"{self.path} is in the way; remove it, or choose another folder")
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current(handle):
                    os.ftruncate(handle, 0)
                    os.write(handle, f"process {os.getpid()} on {socket.gethostname()}, since {now()}".encode())
                    return handle
            except BlockingIOError:
                owner = os.read(handle, 500).decode(errors="replace") or "another process"
                os.close(handle)
                raise InUseError(f"{self.folder} is in use by {owner}; wait for it, or choose another folder") from None
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # its last owner removed it after we had opened it

    def _is_current(self, handle: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        return False

    def release(self) -> None:
        if self.handle is None:
            return
        with suppress(OSError):
            self.path.unlink()  # before the lock is gone: afterwards it could be another process's
        os.close(self.handle)
        self.handle = None
        self._remove_made()

    def _remove_made(self) -> None:
        with suppress(OSError):  # not empty
            for folder in reversed(self.made):
                folder.rmdir()


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def make_folders(folder: Path) -> list[Path]:
    """Make a folder and its parents; returns those that did not exist, outermost first."""
    missing = []
    for each in (folder, *folder.parents):
        if os.path.isdir(each):
            break
        missing.append(each)
    made = []
    for each in reversed(missing):
        with suppress(FileExistsError):  # another process was quicker
            each.mkdir()
            made.append(each)
        if not each.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", str(each))
    return made


def sweep(folder: Path) -> None:
    """Remove the half-written files of a run that was killed."""
    for part in (folder, folder / "checkpoint", folder / "model"):
        with suppress(OSError):
            for path in part.iterdir():
                found = HALF_WRITTEN.fullmatch(path.name)
                if found and (part != folder or found["name"] in FILES):
                    path.unlink(missing_ok=True)
