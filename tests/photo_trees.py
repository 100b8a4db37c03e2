"""Small trees in the layouts of public photo datasets: a colour per class, and few images of few pixels."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

CUB_FOLDER, MINI_FOLDER, IMAGENET_FOLDER = "CUB_200_2011", "miniimagenet", "imagenet"


def colour(label: int, classes: int) -> tuple[int, int, int]:
    """Colours that are as different as so many can be."""
    steps = math.ceil(classes ** (1 / 3))
    red, green, blue = label % steps, label // steps % steps, label // steps**2
    return 255 * red // (steps - 1), 255 * green // (steps - 1), 255 * blue // (steps - 1)


def picture(of: tuple[int, int, int], size: tuple[int, int] = (8, 8)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, of).save(buffer, format="JPEG", quality=95)
    return buffer.getvalue()


@dataclass(frozen=True)
class Tree:
    """What write_* made. Index files can be changed line by line."""

    root: Path
    folder: Path
    classes: list[str]

    def edit(self, index: str, change: Callable[[list[str]], list[str]]) -> None:
        lines = (self.folder / index).read_text().splitlines()
        (self.folder / index).write_text("".join(f"{line}\n" for line in change(lines)))


def fill(folder: Path, names: list[str], data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(data)


def numbered(class_name: str, first: int, count: int, ending: str = "jpg") -> list[str]:
    return [f"{class_name}_{number:04d}.{ending}" for number in range(first, first + count)]


def write_cub(root: Path, training: int = 5, test: int = 1, indexed: bool = True, pictures: bool = True) -> Tree:
    """In images.txt a class's images are in descending order of their names, so that the order can be told."""
    classes = [f"{label + 1:03d}.Bird_{label}" for label in range(200)]
    folder = root / CUB_FOLDER
    images, labels, parts = [], [], []
    for label, name in enumerate(classes):
        files = numbered(f"Bird_{label}", 1, training + test)[::-1]
        data = picture(colour(label, 200)) if pictures else b""
        if not indexed:
            fill(folder / "train" / name, files[:training], data)
            fill(folder / "test" / name, files[training:], data)
            continue
        fill(folder / "images" / name, files, data)
        images += [f"{name}/{file}" for file in files]
        labels += [label + 1] * len(files)
        parts += [1] * training + [0] * test
    if indexed:
        for index, values in (
            ("images.txt", images),
            ("image_class_labels.txt", labels),
            ("train_test_split.txt", parts),
            ("classes.txt", classes),
        ):
            lines = (f"{number} {value}\n" for number, value in enumerate(values, start=1))
            (folder / index).write_text("".join(lines))
    return Tree(root, folder, classes)


def write_mini(root: Path, training: int = 5, test: int = 1, indexed: bool = True, classes: int = 100) -> Tree:
    wnids = [f"n{label:08d}" for label in range(classes)]
    folder = root / MINI_FOLDER
    rows: dict[str, list[str]] = {"train": [], "test": []}
    for label, wnid in enumerate(wnids):
        data = picture(colour(label, classes))
        for part, first, count in (("train", 0, training), ("test", training, test)):
            files = numbered(wnid, first, count)
            fill(folder / "images" if indexed else folder / part / wnid, files, data)
            rows[part] += [f"{file},{wnid}" for file in files]
    if indexed:
        (folder / "split").mkdir()
        for part, lines in rows.items():
            (folder / "split" / f"{part}.csv").write_text("\n".join(["filename,label", *lines, ""]))
    return Tree(root, folder, wnids)


def write_imagenet(
    root: Path, used: list[int], training: int = 5, test: int = 1, classes: int = 1000, folder: str = IMAGENET_FOLDER
) -> Tree:
    """Only classes in use, in this order, have pictures; files of others are empty."""
    wnids = [f"n{label:08d}" for label in range(classes)]
    for label, wnid in enumerate(wnids):
        data = picture(colour(used.index(label), len(used))) if label in used else b""
        for part, count in (("train", training), ("val", test)):
            fill(root / folder / part / wnid, numbered(wnid, 0, count if data else 1, "JPEG"), data)
    return Tree(root, root / folder, wnids)
