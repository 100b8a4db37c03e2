"""fscil predict: name the classes of images."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len

from fscil.cli.common import Device, Json, Model, SkipUnreadable, err, pad
from fscil.errors import UserError
from fscil.learner.listing import photo_files
from fscil.naming import printable

if TYPE_CHECKING:
    from fscil.learner import Learner, Prediction

WIDEST = 60  # cells that a path is padded to
LISTED = 5  # class names in JSON
Answers = list[tuple[Path, "Prediction"]]


def predict(
    model: Model,
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGE", help="Image files, folders of them, or - for a list on standard input."),
    ],
    top: Annotated[
        int | None, typer.Option(min=1, help="How many class names to print for each image.  [default: 1; in JSON 5]")
    ] = None,
    no_unknown: Annotated[
        bool, typer.Option("--no-unknown", help="Answer with the best class, even of an image that is like none.")
    ] = False,
    skip_unreadable: SkipUnreadable = False,
    device: Device = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Json = False,
) -> None:
    """Name what images show: one line each.

    The likeliest class and its probability, or unknown.

    \b
    fscil predict flowers photo.jpg
    fscil predict runs/limit-2/model photos/ --top 3
    fscil predict flowers photos/ --csv > answers.csv
    find . -name "*.jpg" | fscil predict flowers - --json
    """
    if as_csv and as_json:
        raise UserError("give --csv or --json, not both")
    paths = list(photo_files(listed(images)))  # before the wait for torch
    wanted = top or (LISTED if as_json else 1)
    learner = loaded(model, device)
    answers = answered(learner, paths, skip_unreadable, unknown=not no_unknown, rivals=wanted - 1)
    if as_json:
        print(json.dumps([as_facts(path, answer) for path, answer in answers]))
    elif as_csv:
        write_csv(answers, wanted)
    else:
        width = min(WIDEST, max((cell_len(printable(str(path))) for path in paths), default=0))
        for path, answer in answers:
            print(pad(printable(str(path)), width), printable(in_words(answer)), sep="  ")


def loaded(model: Path, device: str | None) -> Learner:
    from fscil.device import choose_device
    from fscil.learner import Learner

    return Learner.load(model, device=choose_device(device).type)


def listed(images: Sequence[Path]) -> list[Path]:
    """Images as given; - stands for the lines of standard input, or what null characters separate there."""
    if Path("-") not in images:
        return list(images)
    try:
        data = sys.stdin.buffer.read() if sys.stdin else b""
    except (OSError, ValueError) as error:
        raise UserError("standard input cannot be read; name images, or give a list of them there") from error
    names = [os.fsdecode(name) for name in data.split(b"\0" if b"\0" in data else b"\n")]
    found = [Path(name.rstrip("\r")) for name in names if name.strip()]
    if not found:
        raise UserError("standard input names no images; give one path a line")
    return [each for image in images for each in (found if image == Path("-") else [image])]


def answered(
    learner: Learner,
    paths: Sequence[Path],
    skip: bool,
    *,
    unknown: bool = True,
    rivals: int = 0,
    doing: str = "predict",
) -> Answers:
    """Every photo's answer as soon as it is found; what cannot be read is an error, or is named and skipped."""
    from fscil.progress import stage_progress

    answers: Answers = []
    with stage_progress(err, "predict", len(paths)) as progress:
        found = learner.predict_each(list(paths), unknown=unknown, rivals=rivals)
        for done, (path, answer) in enumerate(zip(paths, found, strict=True)):
            progress.update(done)
            if not isinstance(answer, UserError):
                answers.append((path, answer))
            elif skip:
                err.print(printable(f"skipped: {answer}"), soft_wrap=True)
            else:
                raise answer
    return answers


def ranked(answer: Prediction) -> list[tuple[str, float]]:
    """The likeliest classes first."""
    return [(answer.best, answer.probability), *((rival.name, rival.probability) for rival in answer.rivals)]


def in_words(answer: Prediction) -> str:
    classes = ", ".join(f"{name} {100 * probability:.1f} %" for name, probability in ranked(answer))
    return f"unknown ({answer.reason}; {classes})" if answer.reason else classes


def as_facts(path: Path, answer: Prediction) -> dict[str, Any]:
    classes = [{"name": name, "probability": round(probability, 6)} for name, probability in ranked(answer)]
    return {
        "image": str(path), "name": answer.name, "reason": answer.reason, "calibrated": answer.calibrated,
        "predictions": classes,
    }  # fmt: skip


def write_csv(answers: Answers, wanted: int) -> None:
    """A row for each image; names may be anything, so paths are written as they are and quoted where needed."""
    write: Callable[[Sequence[object]], object] = csv.writer(sys.stdout, lineterminator="\n").writerow
    more = [f"{what}_{i}" for i in range(2, wanted + 1) for what in ("class", "probability")]
    write(["image", "name", "best", "probability", "reason", *more])
    for path, answer in answers:
        (best, probability), *others = ranked(answer)
        rest = [value for name, p in others for value in (name, f"{p:.6f}")]
        write([str(path), answer.name, best, f"{probability:.6f}", answer.reason, *rest])
