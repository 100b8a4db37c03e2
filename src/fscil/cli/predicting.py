"""fscil predict: name the classes of images."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer
from rich.cells import cell_len

from fscil.cli.common import Device, Json, err, pad
from fscil.errors import UserError
from fscil.files import check_regular, visible_entries
from fscil.naming import printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AT_ONCE = 256  # images that are read into memory together

# In a folder, files with these suffixes are images. A file given by name may have any suffix.
SUFFIXES = {
    ".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
}  # fmt: skip


class Prediction(TypedDict):
    name: str
    probability: float


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, e.g. runs/limit-2/model.")],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE", help="Image files, or folders of them.")],
    top: Annotated[int, typer.Option(min=1, help="How many class names to print for each image.")] = 5,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Predict the classes of images. The likeliest come first, with their probabilities.

    \b
    fscil predict runs/limit-2/model photo.jpg
    fscil predict runs/limit-2/model photos/ --top 1
    fscil predict runs/limit-2/model a.png b.png --json
    """
    paths = list(image_files(images))  # before the wait for torch
    import fscil
    from fscil.progress import stage_progress
    from fscil.runs import choose_device

    classifier = fscil.load(model, device=str(choose_device(device)))
    found: list[list[Prediction]] = []
    with stage_progress(err, "predict", len(paths)) as progress:
        for start in range(0, len(paths), AT_ONCE):
            probabilities = classifier.predict_proba(paths[start : start + AT_ONCE])
            found += [ranked(row, classifier.class_names, top) for row in probabilities]
            progress.update(len(found))
    pairs = list(zip(map(str, paths), found, strict=True))
    if as_json:
        print(json.dumps([{"image": path, "predictions": names} for path, names in pairs]))
        return
    for path, names in pairs:
        print(printable(path), *name_lines(names), sep="\n")


def image_files(given: Sequence[Path]) -> Iterator[Path]:
    """The given files and the image files in given folders, in order."""
    for path in given:
        if os.path.isdir(path):  # unlike Path.is_dir, no error if the name is too long for a file
            yield from images_in(path)
            continue
        try:
            check_regular(path)
        except OSError as error:
            reason = f"there is no image {path} ({error.strerror})"
            raise UserError(f"{reason}; name image files, or folders of them") from error
        yield path


def images_in(folder: Path) -> list[Path]:
    images = [path for path in visible_entries(folder) if path.suffix.lower() in SUFFIXES and os.path.isfile(path)]
    if not images:
        raise UserError(f"{folder} holds no image files (folders in it are not searched); name files, or their folder")
    return images


def ranked(probabilities: NDArray[np.float32], class_names: Sequence[str], top: int) -> list[Prediction]:
    """The likeliest classes first; ties go to the class that was learned first."""
    order = (-probabilities).argsort(kind="stable")[:top]
    return [{"name": class_names[i], "probability": round(float(probabilities[i]), 6)} for i in order]


def name_lines(predictions: Sequence[Prediction]) -> list[str]:
    names = [printable(each["name"]) for each in predictions]
    width = max(map(cell_len, names))
    return [
        f"   {pad(name, width)}  {100 * each['probability']:5.1f} %"
        for name, each in zip(names, predictions, strict=True)
    ]
