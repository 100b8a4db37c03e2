"""Trees of part/class/file, such as train/n01440764/n01440764_10026.JPEG, which several public datasets come as."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from fscil.datasets.folder_index import LITTER, check_class_names
from fscil.datasets.photo_dataset import Listing
from fscil.errors import UserError


@dataclass(frozen=True)
class Below(Sequence[Path]):
    """Paths of files by name, made when they are needed: a million of them would take half a gigabyte."""

    training_folder: Path
    test_folder: Path
    names: Sequence[str]
    training: int  # how many are in the first folder

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> list[Path]: ...
    def __getitem__(self, index: int | slice) -> Path | list[Path]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return (self.training_folder if place < self.training else self.test_folder) / self.names[place]

    def __iter__(self) -> Iterator[Path]:
        return (self[place] for place in range(len(self)))


def locate(title: str, root: Path, known: Sequence[str], how_to_get: str, holding: str = "") -> Path:
    """The dataset's folder, under one of its usual names; `holding` names something that must be in it."""
    found: dict[tuple[int, int], Path] = {}
    for name in known:
        if os.path.isdir(root / name / holding):
            status = os.stat(root / name)
            found.setdefault((status.st_dev, status.st_ino), root / name)  # once, even if case does not matter
    if not found:
        names = [str(Path(name, holding)) for name in known]
        raise UserError(f"{title}: {root} has no folder {' or '.join(names)}; {how_to_get}")
    first, *others = found.values()
    if others:
        raise UserError(f"{title}: {first} and {others[0]} are both there; rename or remove one of them")
    return first


def has_class_folders(folder: Path) -> bool:
    return all(os.path.isdir(folder / part) for part in ("train", "test"))


def common_classes(title: str, training: Path, test: Path) -> list[str]:
    """Sorted names of the class folders, which must be the same in both parts."""
    names, in_test = folder_names(title, training), folder_names(title, test)
    for part, missing in ((test, set(names) - set(in_test)), (training, set(in_test) - set(names))):
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise UserError(f"{title}: {part} lacks the class {min(missing)}{more}; both parts need the same classes")
    check_class_names(names)
    return names


def list_classes(title: str, training: Path, test: Path, classes: Sequence[str]) -> Listing:
    """The files of these classes, in this order, each class sorted by name."""
    names: list[str] = []
    labels: list[int] = []
    count = 0
    for part in (training, test):
        count = len(names)  # in the end, of the training files
        for label, class_name in enumerate(classes):
            files = file_names(title, part / class_name)
            names += [f"{class_name}/{file}" for file in files]
            labels += [label] * len(files)
    return Listing(classes, Below(training, test, names, count), names, labels, count)


def folder_names(title: str, folder: Path) -> list[str]:
    """Folders in a folder, sorted; archives, notes and the like beside them do not matter."""
    return sorted(entry.name for entry in _entries(title, folder) if entry.is_dir())


def file_names(title: str, folder: Path) -> list[str]:
    """Files of a class folder, sorted, without a look at each: a folder says which of its entries are folders."""
    names = []
    for entry in _entries(title, folder):
        if entry.is_dir():
            raise UserError(f"{title}: {entry.path} is a folder among the images of a class; move or remove it")
        names.append(entry.name)
    if not names:
        raise UserError(f"{title}: class folder {folder} is empty; copy or unpack the dataset again")
    return sorted(names)


def _entries(title: str, folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name[0] != "." and entry.name.casefold() not in LITTER]
    except OSError as error:
        raise UserError(f"{title}: {folder} cannot be read ({error.strerror}); check its permissions") from error
