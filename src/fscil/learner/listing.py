"""Photos by the files and folders that hold them, for verbs that take paths. Nothing is decoded here."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from fscil.errors import UserError
from fscil.files import check_regular, visible_entries

# In a folder, files with these suffixes are photos. A file given by name may have any suffix.
SUFFIXES = {
    ".avif", ".bmp", ".gif", ".heic", ".heif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif",
    ".tiff", ".webp",
}  # fmt: skip
Photos = dict[str, list[Path]]  # by class


def photo_files(given: Sequence[Path]) -> Iterator[Path]:
    """The given files and the photos in given folders, in order."""
    for path in given:
        if os.path.isdir(path):  # unlike Path.is_dir, no error if the name is too long for a file
            yield from photos_in(path)
            continue
        check_photo(path)
        yield path


def check_photo(path: Path) -> None:
    try:
        check_regular(path)
    except OSError as error:
        reason = f"there is no image {path} ({error.strerror})"
        raise UserError(f"{reason}; name image files, or folders of them") from error


def photos_in(folder: Path) -> list[Path]:
    photos = _photos(visible_entries(folder))
    if not photos:
        raise UserError(f"{folder} holds no image files (folders in it are not searched); name files, or their folder")
    return photos


def by_folder(given: Sequence[Path]) -> Photos:
    """Photos by the name of the folder that they are in: files, folders of photos, and folders of such folders."""
    found: Photos = {}
    for path in given:
        if not os.path.isdir(path):
            check_photo(path)
            found.setdefault(folder_name(path.parent, path), []).append(path)
            continue
        entries = visible_entries(path)
        photos, folders = _photos(entries), [each for each in entries if os.path.isdir(each)]
        within = {each: _photos(visible_entries(each)) for each in folders}
        if photos and any(within.values()):
            raise UserError(f"{path} holds photos and folders of photos; name the photos or the folders that you mean")
        if photos:
            found.setdefault(folder_name(path, path), []).extend(photos)
            continue
        if not any(within.values()):
            raise UserError(f"{path} holds no photos, nor folders of photos; name photos, or their folder")
        for each, several in within.items():
            if several:
                found.setdefault(folder_name(each, each), []).extend(several)
    return found


def class_folders(folder: Path) -> Photos:
    """The photos of a folder of class folders, by class."""
    if not os.path.isdir(folder):
        raise UserError(f"there is no folder {folder}; name a folder with a folder of photos for each class")
    found: Photos = {}
    for each in visible_entries(folder):
        if os.path.isdir(each) and (photos := _photos(visible_entries(each))):
            found.setdefault(folder_name(each, each), []).extend(photos)
    if not found:
        raise UserError(f"{folder} holds no folders of photos; make one for each class, named after it")
    return found


def folder_name(folder: Path, path: Path) -> str:
    """A class's name from its folder, which must have been named: `.` says nothing."""
    name = folder.name
    if name in ("", ".", ".."):
        raise UserError(f"{path} is in no folder that gives a class's name; say which class it is, as in --name tulip")
    return unicodedata.normalize("NFC", name)


def _photos(entries: Sequence[Path]) -> list[Path]:
    return [path for path in entries if path.suffix.lower() in SUFFIXES and os.path.isfile(path)]
