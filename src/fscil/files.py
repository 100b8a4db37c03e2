"""Files that are written whole or not at all, and read only if they are files of a bounded size."""

from __future__ import annotations

import errno
import os
import secrets
import stat
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


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes.

    Anything else raises OSError with a reason to show, as does a file that cannot be read: a named pipe or a device,
    which could block or never end, is not even waited for.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a null character in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        check_status(status, path, most)
        data = file.read(status.st_size + 1)  # Python would set aside memory for `most`
    if len(data) > status.st_size:
        raise OSError(errno.EBUSY, "it grew while it was read", str(path))
    return data


def check_regular(path: Path, most: int | None = None) -> None:
    """The same check, for a file that another library opens by its name."""
    try:
        status = os.stat(path)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    check_status(status, path, most)


def check_status(status: os.stat_result, path: Path, most: int | None) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if most is not None and status.st_size > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", str(path))


def check_replaceable(path: Path) -> None:
    """Refuse to overwrite a picture or page that is not ours: ours carry our name in their first bytes."""
    if not os.path.lexists(path):
        return
    try:
        check_regular(path)
        with open(path, "rb") as file:
            if b"fscil" in file.read(1000):
                return
    except OSError as error:
        raise UserError(f"{path} cannot be overwritten ({error.strerror}); choose another --out") from error
    raise UserError(f"{path} was not written by fscil and would be overwritten; move it, or choose another --out")


def file_name_bytes(name: str) -> bytes:
    """A name to be hashed. Names of files need not be UTF-8; Python keeps such bytes as surrogates."""
    return name.encode("utf-8", "surrogateescape")


def is_unicode(text: str) -> bool:
    """Whether a text can be written into JSON or HTML: no bytes of a name that is not UTF-8 are in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def expand_user(named: str) -> Path:
    """A path whose leading ~ or ~user is that user's home; if there is no such user, the path is left as it is."""
    try:
        return Path(os.path.expanduser(named))
    except ValueError:  # a null character
        return Path(named)


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
