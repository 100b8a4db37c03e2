"""A folder of photos: which file belongs to which class. Layouts are understood or named; nothing is decoded here."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fscil.datasets.folder_index import LITTER
from fscil.errors import UserError
from fscil.files import is_unicode
from fscil.learner.names import check_name
from fscil.naming import printable

LAYOUT = "expected a folder of photos for each class (photos/tulip/1.jpg)"
# folders that are parts of a dataset rather than classes, if one of them holds what is trained on
PARTS = {
    "train": "train", "training": "train", "val": "held", "valid": "held", "validation": "held", "dev": "held",
    "test": "test", "testing": "test",
}  # fmt: skip
DEEPEST = 64  # folders below a class
NOTE, BAD, STOP = "note", "bad", "stop"


@dataclass(frozen=True)
class Problem:
    """What is wrong with a folder, in a sentence. fit goes on in spite of a note, goes on with skip_bad where something
    is bad, and cannot go on at a stop."""

    kind: str  # unreadable, two-names, duplicate, tiny, one-photo, empty, stray, nested, alike, imbalance, ...
    level: str  # note, bad or stop
    sentence: str
    files: tuple[str, ...] = ()  # relative to the folder


@dataclass(frozen=True)
class Photo:
    path: Path
    key: str  # relative to the folder, with forward slashes
    name: str  # of its class
    part: str  # train, held (out by the user, for choosing) or test


@dataclass
class PhotoFolder:
    root: Path
    layout: str = "class folders"
    photos: list[Photo] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_folder(folder: str | os.PathLike[str]) -> PhotoFolder:
    """Class folders, perhaps in train/ and test/, perhaps with folders inside; what else is there becomes a problem."""
    root = Path(folder)
    if "\0" in str(root) or not os.path.isdir(root):
        what = "is a file" if os.path.isfile(root) and "\0" not in str(root) else "does not exist"
        raise UserError(f"{printable(str(root))} {what}; {LAYOUT}")
    found = PhotoFolder(root)
    top = _unwrapped(found, root)
    folders, files = _entries(found, top)
    parts = {path: PARTS[path.name.casefold()] for path in folders if path.name.casefold() in PARTS}
    if "train" in parts.values() and any(_entries(PhotoFolder(root), path)[0] for path in parts):
        found.layout = " and ".join(f"{path.name}/" for path in parts)
        for path, part in parts.items():
            inner, strays = _entries(found, path)
            files += strays
            for each in inner:
                _read_class(found, each, part)
        for path in folders:
            if path not in parts:
                _add(found, "stray", NOTE, f"{_key(found, path)} is beside {found.layout}; it was left out", path)
    else:
        for path in folders:
            _read_class(found, path, "train")
    if files:
        _add(found, "stray", NOTE, f"{_count(len(files), 'file')} in no class folder: {_some(found, files)}", *files)
    _check_names(found)
    return found


def _unwrapped(found: PhotoFolder, root: Path) -> Path:
    """A folder that holds nothing but one folder of folders, as unpacked archives often do, stands for that one."""
    folders, files = _entries(PhotoFolder(root), root)
    if len(folders) == 1 and not files and folders[0].name.casefold() not in PARTS:
        inner, strays = _entries(PhotoFolder(root), folders[0])
        if len(inner) > 1 and not strays:
            _add(found, "nested", NOTE, f"classes are the folders in {_key(found, folders[0])}", folders[0])
            return folders[0]
    return root


def _read_class(found: PhotoFolder, folder: Path, part: str) -> None:
    direct = 0
    below: list[Path] = []
    for path in _files(found, folder):
        direct += path.parent == folder
        below += [path] if path.parent != folder else []
        name = unicodedata.normalize("NFC", folder.name)
        found.photos.append(Photo(path, _key(found, path), name, part))
    if below:
        inner = sorted({path.relative_to(folder).parts[0] for path in below})
        named = ", ".join(map(printable, inner[:3])) + (f" and {len(inner) - 3} more" if len(inner) > 3 else "")
        sentence = f"photos in the folders of {_key(found, folder)} ({named}) belong to that class"
        _add(found, "nested", NOTE, sentence, folder)
    if not direct and not below:
        _add(found, "empty", NOTE, f"the class folder {_key(found, folder)} is empty", folder)


def _files(found: PhotoFolder, folder: Path, above: tuple[str, ...] = ()) -> Iterator[Path]:
    """All files below; a link to a folder above is not followed."""
    here = os.path.realpath(folder)
    if here in above or len(above) > DEEPEST:
        _add(found, "unreadable", BAD, f"{_key(found, folder)} leads back to a folder above it, or too deep", folder)
        return
    folders, files = _entries(found, folder)
    yield from files
    for each in folders:
        yield from _files(found, each, (*above, here, os.path.realpath(found.root)))


def _entries(found: PhotoFolder, folder: Path) -> tuple[list[Path], list[Path]]:
    """Folders and files, sorted, without what is hidden and what file managers leave behind."""
    folders: list[Path] = []
    files: list[Path] = []
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                if entry.name.startswith(".") or entry.name.casefold() in LITTER:
                    continue
                try:
                    is_folder = entry.is_dir()
                except OSError:
                    is_folder = False  # reading it as a photo will say what is wrong
                (folders if is_folder else files).append(Path(entry.path))
    except OSError as error:
        _add(found, "unreadable", BAD, f"the folder {_key(found, folder)} cannot be read ({error.strerror})", folder)
    return folders, files


def _check_names(found: PhotoFolder) -> None:
    """Names that cannot be classes leave; names that look the same are told."""
    names = dict.fromkeys(photo.name for photo in found.photos)
    for name in list(names):
        try:
            if not is_unicode(name):
                raise UserError(f"the class name {printable(name)} is not UTF-8; rename the folder")
            check_name(name)
        except UserError as error:
            _add(found, "name", BAD, f"{error}: its photos would be left out")
            found.photos = [photo for photo in found.photos if photo.name != name]
            del names[name]
    seen: dict[str, str] = {}
    for name in names:
        plain = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        if plain in seen:
            sentence = (
                f"the classes {printable(seen[plain])} and {printable(name)} are called alike; merge or rename them"
            )
            found.problems.append(Problem("alike", BAD, sentence, (seen[plain], name)))
        seen.setdefault(plain, name)


def _add(found: PhotoFolder, kind: str, level: str, sentence: str, *paths: Path) -> None:
    found.problems.append(Problem(kind, level, sentence, tuple(_key(found, path) for path in paths)))


def _key(found: PhotoFolder, path: Path) -> str:
    """As messages show it."""
    return printable(path.relative_to(found.root).as_posix()) if path != found.root else printable(str(path))


def _some(found: PhotoFolder, paths: list[Path], most: int = 3) -> str:
    named = ", ".join(_key(found, path) for path in paths[:most])
    return f"{named} and {len(paths) - most} more" if len(paths) > most else named


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"
