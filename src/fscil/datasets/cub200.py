"""cub200: 200 species of birds, 100 of them base classes, then 10 sessions of 10-way 5-shot."""

from __future__ import annotations

import os
from pathlib import Path

from fscil.datasets.class_folders import Below, common_classes, has_class_folders, list_classes, locate
from fscil.datasets.decode import Resize
from fscil.datasets.folder_index import check_class_names
from fscil.datasets.index_files import check_name, read_lines
from fscil.datasets.photo_dataset import Listing, PhotoDataset
from fscil.errors import UserError

FOLDERS = ("CUB_200_2011", "cub200")
CLASSES = 200
IMAGES, LABELS, PARTS, NAMES = "images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt"
HOW_TO_GET = (
    f"unpack CUB_200_2011.tgz of the Caltech-UCSD Birds page under --root or FSCIL_DATA, so that {FOLDERS[0]} has "
    f"images/, {IMAGES}, {LABELS}, {PARTS} and {NAMES}"
)


def list_files(root: Path) -> Listing:
    """Classes in the order of their numbers; a class's images in the order of images.txt, or else of their names."""
    folder = locate("cub200", root, FOLDERS, HOW_TO_GET)
    indexed = os.path.isfile(folder / IMAGES)
    if indexed and has_class_folders(folder):
        raise UserError(f"cub200: {folder} has {IMAGES} as well as train/ and test/; keep only one of the two layouts")
    if has_class_folders(folder):
        classes = common_classes("cub200", folder / "train", folder / "test")
        _check_classes(folder, len(classes))
        return list_classes("cub200", folder / "train", folder / "test", classes)
    return _read_index(folder)


def _read_index(folder: Path) -> Listing:
    class_names = _by_number(folder / NAMES)
    _check_classes(folder, len(class_names))
    check_class_names(name for _, name in class_names.values())
    files, class_of, part_of = (_by_number(folder / name) for name in (IMAGES, LABELS, PARTS))
    for name, lines in ((LABELS, class_of), (PARTS, part_of)):
        if lines.keys() != files.keys():
            number = min(lines.keys() ^ files.keys())
            raise UserError(f"cub200: image {number} is not in both {IMAGES} and {name} of {folder}; {HOW_TO_GET}")
    parts: dict[str, list[tuple[str, int]]] = {"1": [], "0": []}
    places = {number: label for label, number in enumerate(sorted(class_names))}
    seen: set[str] = set()
    for number, (where, name) in files.items():
        class_where, class_number = class_of[number]
        label = places.get(_number(class_where, class_number))
        class_folder, _, file = name.partition("/")
        if label is None:
            raise UserError(f"cub200: {class_where}: class {class_number} is not in {NAMES}; {HOW_TO_GET}")
        if class_folder != class_names[int(class_number)][1]:
            raise UserError(f"cub200: {where}: {name!r} is not in the folder of its class {class_number}; {HOW_TO_GET}")
        check_name("cub200", where, file)
        if name in seen:
            raise UserError(f"cub200: {where}: {name} is listed twice; {HOW_TO_GET}")
        seen.add(name)
        part_where, part = part_of[number]
        if part not in parts:
            raise UserError(f"cub200: {part_where}: {part!r} is neither 1 (training) nor 0 (test); {HOW_TO_GET}")
        parts[part].append((name, label))
    # by class, as class folders would be listed; within a class the order of the lines is kept
    ordered = [item for items in parts.values() for item in sorted(items, key=lambda item: item[1])]
    names, training = [name for name, _ in ordered], len(parts["1"])
    return Listing(
        class_names=[class_names[number][1] for number in sorted(class_names)],
        paths=Below(folder / "images", folder / "images", names, training),
        names=names,
        labels=[label for _, label in ordered],
        training=training,
    )


def _by_number(path: Path) -> dict[int, tuple[str, str]]:
    """Lines of a number and a text, as {number: (where it is, text)}, in their order."""
    found: dict[int, tuple[str, str]] = {}
    for where, line in read_lines("cub200", path, HOW_TO_GET):
        first, _, rest = line.partition(" ")
        number = _number(where, first)
        if number in found:
            raise UserError(f"cub200: {where}: number {number} is there twice; {HOW_TO_GET}")
        if path.name == NAMES:
            check_name("cub200", where, rest.strip())
        found[number] = where, rest.strip()
    return found


def _number(where: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UserError(f"cub200: {where}: {text!r} is not a number; {HOW_TO_GET}")
    return int(text)


def _check_classes(folder: Path, count: int) -> None:
    if count != CLASSES:
        raise UserError(f"cub200: {folder} has {count} classes, not {CLASSES}; {HOW_TO_GET}")


CUB200 = PhotoDataset(
    name="cub200",
    description="CUB200, standard split: 100 base + 10 x 10-way 5-shot, 224 px",
    resize=Resize(256),
    base_classes=100,
    way=10,
    sessions=10,
    list_files=list_files,
    how_to_get=HOW_TO_GET,
    defaults={
        "encoder": "resnet18",
        "weights": "imagenet",
        "augmentation": "basic",
        "crop": "resized",
        "flip": True,
        "policy": "imagenet",
        "cutout": 0,
        "recipe": "fine-tuning",
    },
    images_in_all=(5994, 5794),
    published=(
        "ccd05f2fe5a823f0",
        "a3e08a8f49cdac6e",
        "0f0ad9f456b38859",
        "7d8a139b14fe056b",
        "f3515e7fe12df8cd",
        "a1ebbe915e53949e",
        "11d556218b523b80",
        "a1b4714bb47218bf",
        "e393428ee154dc37",
        "49e3d697920639cf",
        "0e89c186ffe02826",
    ),
)
DATASET = CUB200.dataset()
