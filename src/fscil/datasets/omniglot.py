"""omniglot: handwritten characters with ImageNet1000's protocol, at a size that a CPU can run."""

from __future__ import annotations

import os
from pathlib import Path

from fscil.datasets.decode import Resize
from fscil.datasets.photo_dataset import Listing, PhotoDataset
from fscil.errors import UserError
from fscil.files import visible_entries

FOLDER, PARTS = "omniglot-py", ("images_background", "images_evaluation")
CHARACTERS, BACKGROUND, DRAWINGS, TRAINING = 1000, 964, 20, 15
HOW_TO_GET = (
    f"put torchvision's folder {FOLDER} (torchvision.datasets.Omniglot with background=True and with background=False, "
    "download=True) under --root or FSCIL_DATA"
)


def list_files(root: Path) -> Listing:
    """Characters in the order of their paths; of each, drawings 1 to 15 are for training and 16 to 20 for testing."""
    folder = root / FOLDER
    missing = [part for part in PARTS if not os.path.isdir(folder / part)]
    if missing:
        raise UserError(f"omniglot: {folder} lacks {', '.join(missing)}; {HOW_TO_GET}")
    characters = [character for part in PARTS for alphabet in folders(folder / part) for character in folders(alphabet)]
    background = sum(character.parts[-3] == PARTS[0] for character in characters)
    if background != BACKGROUND:
        raise UserError(f"omniglot: {folder / PARTS[0]} has {background} characters, not {BACKGROUND}; {HOW_TO_GET}")
    if len(characters) < CHARACTERS:
        raise UserError(f"omniglot: {folder} has {len(characters)} characters, fewer than {CHARACTERS}; {HOW_TO_GET}")
    training: list[tuple[Path, int]] = []
    test: list[tuple[Path, int]] = []
    for label, character in enumerate(characters[:CHARACTERS]):
        drawings = [file for file in visible_entries(character) if file.suffix == ".png"]
        if len(drawings) != DRAWINGS:
            raise UserError(f"omniglot: {character} has {len(drawings)} drawings, not {DRAWINGS}; {HOW_TO_GET}")
        training += [(file, label) for file in drawings[:TRAINING]]
        test += [(file, label) for file in drawings[TRAINING:]]
    files = training + test
    return Listing(
        class_names=[f"{character.parent.name}/{character.name}" for character in characters[:CHARACTERS]],
        paths=[file for file, _ in files],
        names=[file.relative_to(folder).as_posix() for file, _ in files],
        labels=[label for _, label in files],
        training=len(training),
    )


def folders(folder: Path) -> list[Path]:
    return [entry for entry in visible_entries(folder) if entry.is_dir()]


OMNIGLOT = PhotoDataset(
    name="omniglot",
    description="1,000 handwritten characters: 600 base + 8 x 50-way 5-shot, 32 px",
    resize=Resize(32, invert=True),
    base_classes=600,
    way=50,
    sessions=8,
    list_files=list_files,
    how_to_get=HOW_TO_GET,
    defaults={
        "encoder": "resnet20",
        "augmentation": "basic",
        "crop": "pad",
        "flip": False,
        "policy": "cifar10",
        "cutout": 0,
        "recipe": "medium",
    },
    images_of_class=(TRAINING, DRAWINGS - TRAINING),
)
DATASET = OMNIGLOT.dataset()
