"""imagenet100 and imagenet1000: ILSVRC2012 in the order that the field shuffles its classes into."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np

from fscil.datasets.class_folders import common_classes, folder_names, list_classes, locate
from fscil.datasets.decode import Resize
from fscil.datasets.photo_dataset import Listing, PhotoDataset
from fscil.errors import UserError

FOLDERS = ("imagenet", "ImageNet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC", "imagenet/ILSVRC/Data/CLS-LOC")
CLASSES, ORDER_SEED = 1000, 1993
HOW_TO_GET = (
    "put ILSVRC2012, unpacked into train/ and val/ with a folder for each of its 1000 classes, under --root or "
    f"FSCIL_DATA as {FOLDERS[0]}, {FOLDERS[2]} or {FOLDERS[3]}"
)


def list_files(root: Path, name: str, classes: int) -> Listing:
    """The first classes of the shuffled order; a class's images sorted by name."""
    folder = locate(name, root, FOLDERS, HOW_TO_GET, holding="train")
    training, test = folder / "train", folder / "val"
    count = len(folder_names(name, training))
    if count != CLASSES:
        raise UserError(
            f"{name}: {training} has {count} class folders, not {CLASSES}: the order of the classes is a shuffle of "
            f"all of them, even if only 100 are used; {HOW_TO_GET}"
        )
    if not os.path.isdir(test):
        raise UserError(f"{name}: there is no {test}; {HOW_TO_GET}")
    if not folder_names(name, test):
        raise UserError(
            f"{name}: {test} has no class folders; move its images into a folder per class, named as in {training}"
        )
    wnids = common_classes(name, training, test)
    return list_classes(name, training, test, [wnids[place] for place in class_order()[:classes]])


def class_order() -> list[int]:
    """Places among the sorted WordNet ids, by legacy NumPy."""
    order = list(range(CLASSES))
    np.random.RandomState(ORDER_SEED).shuffle(order)
    return order


def _dataset(classes: int, base_classes: int, way: int) -> PhotoDataset:
    name = f"imagenet{classes}"
    return PhotoDataset(
        name=name,
        description=f"{classes:,} classes of ILSVRC2012: {base_classes} base + 8 x {way}-way 5-shot, 224 px",
        resize=Resize(256, squash=True),
        base_classes=base_classes,
        way=way,
        sessions=8,
        list_files=partial(list_files, name=name, classes=classes),
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
        images_of_class=(None, 50),
        images_in_all=(1_281_167, 50_000) if classes == CLASSES else None,
    )


IMAGENET100, IMAGENET1000 = _dataset(100, 60, 5), _dataset(1000, 600, 50)
DATASETS = IMAGENET100.dataset(), IMAGENET1000.dataset()
