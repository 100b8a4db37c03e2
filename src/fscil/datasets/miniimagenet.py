"""miniimagenet: 60 base classes, then 8 sessions of 5-way 5-shot; not the 64/16/20 classes of few-shot learning."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fscil.datasets.class_folders import common_classes, folder_names, has_class_folders, list_classes, locate
from fscil.datasets.decode import Resize
from fscil.datasets.folder_index import check_class_names
from fscil.datasets.index_files import check_name, read_lines
from fscil.datasets.photo_dataset import Listing, PhotoDataset
from fscil.errors import UserError
from fscil.files import visible_entries

FOLDERS = ("miniimagenet", "mini-imagenet", "MINI-ImageNet")
CLASSES, FEW_SHOT_CLASSES = 100, 64
HEADER = ["filename", "label"]
HOW_TO_GET = (
    f"put a folder {FOLDERS[0]} with images/ and split/train.csv and split/test.csv, or with train/ and test/ of a "
    "folder per class, under --root or FSCIL_DATA"
)
WHOLE = (
    "all 100 classes must be in both parts, 500 training and 100 test images each; data/index_list/mini_imagenet of "
    "the public CEC-CVPR2021 repository has such csv files"
)


def list_files(root: Path) -> Listing:
    """Classes sorted by WordNet id; a class's images in the order of the csv file, or else of their names."""
    try:
        folder = locate("miniimagenet", root, FOLDERS, HOW_TO_GET)
    except UserError:
        _refuse_pickles(root)
        raise
    flat, training, test = folder / "images", folder / "train", folder / "test"
    if os.path.isdir(flat) and has_class_folders(folder):
        raise UserError(f"miniimagenet: {folder} has images/ as well as train/ and test/; keep only one of the two")
    if os.path.isdir(flat):
        return _read_index(folder, flat)
    if not has_class_folders(folder):
        _refuse_pickles(folder)
        raise UserError(f"miniimagenet: {folder} has neither images/ nor train/ and test/; {HOW_TO_GET}")
    _check_classes(training, len(folder_names("miniimagenet", training)))
    return list_classes("miniimagenet", training, test, common_classes("miniimagenet", training, test))


def _read_index(folder: Path, images: Path) -> Listing:
    parts = []
    for name in ("train.csv", "test.csv"):
        index = next((path for path in (folder / "split" / name, folder / name) if os.path.isfile(path)), None)
        if index is None:
            raise UserError(f"miniimagenet: {folder} lacks split/{name}; {HOW_TO_GET}")
        parts.append(list(_rows(index)))
        _check_classes(index, len({wnid for _, _, wnid in parts[-1]}))
    classes = sorted({wnid for _, _, wnid in parts[0]})
    check_class_names(classes)
    labels = {wnid: label for label, wnid in enumerate(classes)}
    seen: set[str] = set()
    for where, file, wnid in (row for rows in parts for row in rows):
        if wnid not in labels:
            raise UserError(f"miniimagenet: {where}: class {wnid} is not in train.csv; {WHOLE}")
        if file in seen:
            raise UserError(f"miniimagenet: {where}: {file} is listed twice; list every image once")
        seen.add(file)
    ordered = [row for rows in parts for row in sorted(rows, key=lambda row: row[2])]
    return Listing(
        class_names=classes,
        paths=[images / file for _, file, _ in ordered],
        names=[f"{wnid}/{file}" for _, file, wnid in ordered],
        labels=[labels[wnid] for _, _, wnid in ordered],
        training=len(parts[0]),
    )


def _rows(index: Path) -> Iterator[tuple[str, str, str]]:
    """Where every row is, its file and its class."""
    lines = read_lines("miniimagenet", index, HOW_TO_GET)
    header, *rows = lines or [("", "")]
    if [cell.strip().casefold() for cell in header[1].split(",")] != HEADER:
        raise UserError(f"miniimagenet: the first line of {index} must be {','.join(HEADER)}; add it")
    for where, line in rows:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(HEADER):
            raise UserError(f"miniimagenet: {where}: {line!r} is not a file name, a comma and a class; correct it")
        file, wnid = (check_name("miniimagenet", where, cell) for cell in cells)
        yield where, file, wnid


def _check_classes(found_in: Path, count: int) -> None:
    if count == FEW_SHOT_CLASSES:
        raise UserError(
            f"miniimagenet: {found_in} has 64 classes, the split of few-shot learning without increments; {WHOLE}"
        )
    if count != CLASSES:
        raise UserError(f"miniimagenet: {found_in} has {count} classes, not {CLASSES}; {WHOLE}")


def _refuse_pickles(folder: Path) -> None:
    entries = visible_entries(folder) if os.path.isdir(folder) else []
    pickles = [entry.name for entry in entries if entry.suffix in (".pkl", ".pickle")]
    if pickles:
        raise UserError(
            f"miniimagenet: {folder / pickles[0]} is a pickle, which could run any code and is not loaded, and its "
            f"64/16/20 classes are another split; {HOW_TO_GET}"
        )


MINIIMAGENET = PhotoDataset(
    name="miniimagenet",
    description="miniImageNet, standard split: 60 base + 8 x 5-way 5-shot, 84 px",
    resize=Resize(92, squash=True),
    base_classes=60,
    way=5,
    sessions=8,
    list_files=list_files,
    how_to_get=HOW_TO_GET,
    defaults={
        "encoder": "resnet18",
        "augmentation": "autoaug",
        "crop": "resized",
        "flip": True,
        "policy": "imagenet",
        "cutout": 0,
        "recipe": "paper",
    },
    images_of_class=(500, 100),
    published=(
        "4fc7b82daca7cd11",
        "e483751476384838",
        "7666af3c584b2240",
        "257a0960eecd0cc9",
        "34920523d6fcab14",
        "85cc1a80b7831b95",
        "bd8840045ee8079a",
        "2e73ac1e3ab00ae6",
        "4e2200cb949cb2e0",
    ),
)
DATASET = MINIIMAGENET.dataset()
