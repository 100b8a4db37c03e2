"""Files that are either complete or absent."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from fscil.errors import UserError


def write_atomically(path: Path, data: bytes) -> None:
    """Write data beside its name and rename it into place, so that there is never half a file, even after a crash.

    Missing folders are created. If the disk is full or the folder is not writable, the previous file is kept, nothing
    is left beside it, and the user gets a one-line error.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name[:64]}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        sync_folder(path.parent)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; free some space or choose a folder you may write to"
        ) from error
    finally:
        with suppress(OSError):  # after the rename there is nothing left to remove
            beside.unlink()


def visible_entries(folder: Path) -> list[Path]:
    """What a folder holds, sorted, without the hidden files that file managers leave behind."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder} cannot be read ({error.strerror}); check its permissions") from error
    return [entry for entry in entries if not entry.name.startswith(".")]


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, if the file system supports that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
