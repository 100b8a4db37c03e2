"""Sorting: photos are copied or moved into a folder for each class; a list of what was done can undo it.

Nothing is ever overwritten, and nothing is written outside the folder that was named. The list is written before the
first photo, so that what was interrupted can be undone, too.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from fscil.errors import UserError
from fscil.files import read_regular, sync_folder, write_atomically
from fscil.learner.safe_names import free_name, safe_folders

FORMAT, KIND = 1, "photos that were sorted"
MOST_BYTES = 2**30  # of a list
LIST = "sorted"


@dataclass(frozen=True)
class Placed:
    """Where a photo goes."""

    photo: str  # its path as it was given
    to: str  # relative to the folder that is sorted into
    name: str  # its class, or `unknown`
    probability: float


@dataclass(frozen=True)
class Undone:
    restored: int
    left: tuple[str, ...]  # what was not restored, and why


def plan(
    photos: Sequence[Path], answers: Sequence[tuple[str, float]], classes: Sequence[str], to: Path
) -> list[Placed]:
    """Where photos with these answers, name and probability, would go. Nothing is written."""
    folders = safe_folders([*classes, *(name for name, _ in answers)])
    for folder in sorted({folders[name] for name, _ in answers}):
        check_folder(to / folder)
    taken: set[str] = set()
    placed = []
    for photo, (name, probability) in zip(photos, answers, strict=True):
        folder = folders[name]
        if os.path.abspath(photo) == os.path.abspath(to / folder / photo.name):
            continue  # it is there already

        def is_taken(file: str, folder: str = folder) -> bool:
            return f"{folder}/{file}".casefold() in taken or os.path.lexists(to / folder / file)

        file = free_name(photo.stem, photo.suffix, is_taken)
        taken.add(f"{folder}/{file}".casefold())
        placed.append(Placed(str(photo), f"{folder}/{file}", name, probability))
    return placed


def check_folder(folder: Path) -> None:
    """A link would lead out of the folder that was named."""
    if os.path.islink(folder) or (os.path.lexists(folder) and not os.path.isdir(folder)):
        raise UserError(f"{folder} is in the way: it is not a folder of its own; move it, or choose another --to")


def write_list(placed: Sequence[Placed], to: Path, move: bool) -> Path:
    """The list by which `undo` takes back what is about to be done."""
    made = [str(folder) for folder in missing_folders(to)]
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{to} cannot be made ({error.strerror}); choose another --to") from error
    root = Path(os.path.abspath(to))
    when = datetime.now(UTC)
    path = to / free_name(f"{LIST}-{when:%Y%m%d-%H%M%S}", ".json", lambda name: os.path.lexists(to / name))
    made += [str(root / folder) for folder in sorted({each.to.partition("/")[0] for each in placed})
             if not os.path.lexists(to / folder)]  # fmt: skip
    photos = [{**asdict(each), "photo": os.path.abspath(each.photo)} for each in placed]
    facts = {"kind": KIND, "format": FORMAT, "when": when.isoformat(timespec="seconds"), "moved": move, "made": made}
    write_atomically(path, (json.dumps({**facts, "photos": photos}, indent=1) + "\n").encode())
    return path


def carry_out(placed: Sequence[Placed], path: Path, move: bool, seen: Callable[[int], object] | None = None) -> None:
    """Copy or move photos as planned, into the folder of their list."""
    to = path.parent
    for done, each in enumerate(placed):
        if seen is not None:
            seen(done)
        target = to / each.to
        try:
            check_folder(target.parent)
            target.parent.mkdir(exist_ok=True)
            (move_file if move else copy_file)(Path(each.photo), target)
        except OSError as error:
            raise UserError(
                f"{each.photo} cannot be put into {target.parent} ({error.strerror}); "
                f"{done} of {len(placed)} photos were; take them back with: fscil sort --undo {path}"
            ) from error


def missing_folders(folder: Path) -> list[Path]:
    """The folder and those around it that do not exist, the outermost first."""
    absolute = Path(os.path.abspath(folder))
    return [each for each in (*reversed(absolute.parents), absolute) if not os.path.lexists(each)]


def copy_file(source: Path, target: Path) -> None:
    """Refuses to overwrite; half a copy is removed."""
    with open(source, "rb") as reading, open(target, "xb") as writing:
        try:
            shutil.copyfileobj(reading, writing, 2**20)
            writing.flush()
            os.fsync(writing.fileno())
        except BaseException:
            target.unlink(missing_ok=True)
            raise
    with suppress(OSError):
        shutil.copystat(source, target)


def move_file(source: Path, target: Path) -> None:
    """Refuses to overwrite, which renaming would not. A kill leaves the photo in one place or in both."""
    if os.path.islink(source):  # its target stays where it is; a relative link would break
        raise OSError(errno.EINVAL, "it is a link; copy it instead", str(source))
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # another disk, or one without hard links
        copy_file(source, target)
    sync_folder(target.parent)
    source.unlink()


def undo(path: Path, seen: Callable[[int], object] | None = None) -> Undone:
    """Take back what a list says: moved photos return, and copies go if they are still the same as the original."""
    facts = read_list(path)
    to, restored, left = path.parent, 0, list[str]()
    for done, each in enumerate(facts["photos"]):
        if seen is not None:
            seen(done)
        source, target = Path(each["photo"]), to / each["to"]
        if not os.path.lexists(target):
            continue  # it was never placed, or was taken away since
        try:
            reason = (_move_back if facts["moved"] else _remove_copy)(source, target)
        except OSError as error:
            reason = error.strerror or str(error)
        restored += not reason
        left += [f"{target} ({reason})"] if reason else []
    if not left:
        path.unlink()
        for folder in reversed(facts["made"]):
            with suppress(OSError):  # not empty
                os.rmdir(folder)
    return Undone(restored, tuple(left))


def _move_back(source: Path, target: Path) -> str:
    if os.path.lexists(source):
        if _same(source, target):  # a kill left it in both places
            target.unlink()
            return ""
        return f"{source} is there again"
    source.parent.mkdir(parents=True, exist_ok=True)
    move_file(target, source)
    return ""


def _remove_copy(source: Path, target: Path) -> str:
    if os.path.islink(target) or not os.path.isfile(target):
        return "it is no longer the copy"
    if not os.path.isfile(source):
        return f"{source} is gone, so this copy is kept"
    if not _same(source, target):
        return f"it differs from {source}"
    target.unlink()
    return ""


def _same(a: Path, b: Path) -> bool:
    if os.path.samefile(a, b):
        return os.path.abspath(a) != os.path.abspath(b)  # two names of one file
    with open(a, "rb") as one, open(b, "rb") as other:
        while (part := one.read(2**20)) == other.read(2**20):
            if not part:
                return True
    return False


def read_list(path: Path) -> dict[str, Any]:
    """A list that carry_out wrote; its photos are below the folder that it is in."""
    try:
        facts = json.loads(read_regular(path, MOST_BYTES))
        if facts["kind"] != KIND or type(facts["format"]) is not int or type(facts["moved"]) is not bool:
            raise ValueError("it is something else")
        if facts["format"] > FORMAT:
            raise UserError(f"{path} was written by a newer fscil; update fscil to read it")
        made = {str(each) for each in facts["made"]}
        for each in facts["photos"]:
            parts = PurePosixPath(each["to"]).parts
            if (
                len(parts) != 2
                or ".." in parts
                or "\0" in each["to"] + each["photo"]
                or not os.path.isabs(each["photo"])
            ):
                raise ValueError("a photo is outside of its folder")
        root = Path(os.path.abspath(path.parent))
        for folder in made:
            if root != Path(folder) and root not in Path(folder).parents and Path(folder) not in root.parents:
                raise ValueError("a folder is outside of its own")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); name the one that sort has written") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is no list of photos that were sorted; name the one that sort has written") from error
    return dict(facts)
