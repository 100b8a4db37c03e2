"""Which images there are: a `class/image` tree or a CSV manifest, as a sorted list of items."""

from __future__ import annotations

import csv
import io
import os
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fscil.errors import UserError
from fscil.files import is_unicode, read_regular, visible_entries

LAYOUT = "expected one folder per class with its images inside (class/image.jpg), or a CSV file with columns path,class"
LITTER = {"thumbs.db", "desktop.ini", "__macosx"}  # what file managers leave behind, besides dot files
MOST_BYTES = 256 * 2**20  # of a manifest


@dataclass(frozen=True)
class Item:
    path: Path
    key: str  # path relative to the tree or manifest, with forward slashes: the item's name in checksums
    class_name: str
    part: str  # "train", "test", or "" if test_share decides


def read_items(path: Path) -> list[Item]:
    """All images, sorted by their keys; class names that look the same are refused."""
    items = list(_tree(path) if os.path.isdir(path) else _manifest(path))
    if not items:
        raise UserError(f"{path} holds no images; {LAYOUT}")
    check_class_names({item.class_name for item in items})
    return sorted(items, key=lambda item: item.key)


def check_class_names(names: Iterable[str]) -> None:
    """Two names that differ only in case, spaces or Unicode form are a mistake, not two classes.

    Names are written into results and reports, so bytes that are not UTF-8 are refused before any training.
    """
    seen: dict[str, str] = {}
    for name in sorted(names):
        if not is_unicode(name):
            raise UserError(f"the name of class {name!r} is not UTF-8; rename it")
        plain = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        if not plain:
            raise UserError(f"a class has an empty name ({name!r}); rename it")
        if plain in seen:
            raise UserError(f"classes {seen[plain]!r} and {name!r} have the same name; merge or rename them")
        seen[plain] = name


def _tree(root: Path) -> Iterator[Item]:
    for folder in _entries(root):
        if not _is_folder(folder):
            continue
        files = _entries(folder)
        for file in files:
            if _is_folder(file):
                raise UserError(f"{file} is a folder inside the class {folder.name!r}; {LAYOUT}")
            yield Item(file, _key(folder.name, file.name), folder.name, "")
        if not files:
            raise UserError(f"class folder {folder} is empty; add images or remove it")


def _is_folder(path: Path) -> bool:
    """Unlike os.path.isdir, it tells a folder whose entries may not be looked at from one without folders."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except PermissionError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); check the permissions of its folder") from error
    except OSError:  # a broken link; if it is among the images, reading it says so
        return False


def _entries(folder: Path) -> list[Path]:
    return [entry for entry in visible_entries(folder) if entry.name.casefold() not in LITTER]


def _manifest(manifest: Path) -> Iterator[Item]:
    """Rows of path (relative to the manifest's folder), class, and optionally split (train or test)."""
    rows = _read_csv(manifest)
    header = [name.strip().casefold() for name in rows[0]] if rows else []
    missing = [name for name in ("path", "class") if name not in header]
    if missing:
        raise UserError(f"{manifest} has no column {' and '.join(missing)}; its first line must be path,class[,split]")
    seen: set[str] = set()
    for number, row in enumerate(rows[1:], start=2):
        if not any(cell.strip() for cell in row):
            continue
        where = f"{manifest}, row {number}"
        if len(row) > len(header):
            raise UserError(f"{where} has {len(row)} cells for {len(header)} columns; quote names that contain commas")
        cells = dict(zip(header, row, strict=False))
        item = _manifest_item(manifest, where, cells, has_split="split" in header)
        if item.key in seen:
            raise UserError(f"{where}: {item.key} is listed twice; list every image once")
        seen.add(item.key)
        yield item


def _read_csv(manifest: Path) -> Sequence[list[str]]:
    try:
        text = read_regular(manifest, MOST_BYTES).decode("utf-8-sig")
        return list(csv.reader(io.StringIO(text, newline=""), skipinitialspace=True))
    except FileNotFoundError as error:
        raise UserError(f"there is no {manifest}; {LAYOUT}") from error
    except OSError as error:
        raise UserError(f"{manifest} cannot be read ({error.strerror}); {LAYOUT}") from error
    except (ValueError, csv.Error) as error:
        raise UserError(f"{manifest} cannot be read as CSV in UTF-8; save it again as such") from error


def _manifest_item(manifest: Path, where: str, cells: dict[str, str], has_split: bool) -> Item:
    named, class_name = cells.get("path", "").strip(), cells.get("class", "")
    if not named or not class_name.strip():
        raise UserError(f"{where} has no {'class' if named else 'path'}; fill it in or remove the row")
    relative = os.path.normpath(named)
    if "\0" in named or os.path.isabs(relative) or relative.split(os.sep)[0] == os.pardir:
        raise UserError(f"{where}: {named!r} lies outside {manifest.parent}; paths must be relative to the manifest")
    path = manifest.parent / relative
    if not os.path.isfile(path):
        raise UserError(f"{where}: there is no file {path}; paths are relative to the manifest")
    part = cells.get("split", "").strip().casefold()
    if has_split and part not in ("train", "test"):
        raise UserError(f"{where}: split is {part!r}; it must be train or test")
    return Item(path, _key(*Path(relative).parts), class_name, part)


def _key(*parts: str) -> str:
    """The same on every file system: some store accents composed, some decomposed."""
    return unicodedata.normalize("NFC", str(PurePosixPath(*parts)))
