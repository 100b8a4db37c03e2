"""fscil evaluate: how often a model is right about photos whose classes are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len

from fscil.cli.common import Device, Json, Model, SkipUnreadable, checked_path, count, err, pad, say
from fscil.cli.predicting import loaded
from fscil.learner.listing import class_folders
from fscil.naming import printable

if TYPE_CHECKING:
    from fscil.learner import Evaluation

MOST_MISTAKES = 20


def evaluate(
    model: Model,
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", callback=checked_path, help="A folder of photos for each class, in a folder."),
    ],
    skip_unreadable: SkipUnreadable = False,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Test a model on photos that it was not taught.

    The folder has a folder of photos for each class. Photos of other classes, and of a folder `unknown`, ought to be
    called unknown.

    \b
    fscil evaluate flowers test/
    fscil evaluate flowers test/ --json
    """
    photos = class_folders(folder)
    from fscil.learner import evaluate as evaluate_photos
    from fscil.progress import stage_progress

    learner = loaded(model, device)
    with stage_progress(err, "evaluate", sum(map(len, photos.values()))) as progress:
        found = evaluate_photos(learner, photos, skip_unreadable=skip_unreadable, progress=progress.update)
    if as_json:
        print(json.dumps(found.as_dict()))
    else:
        tell(found)


def tell(found: Evaluation) -> None:
    say(f"{found.right} of {count(found.photos, 'photo')} are right ({100 * found.accuracy:.1f} %)")
    if found.called_unknown and found.best_accuracy is not None:
        say(
            f"{100 * found.called_unknown:.1f} % of photos of known classes are called unknown; if none could be, "
            f"{100 * found.best_accuracy:.1f} % of them would be right"
        )
    if found.let_through is not None:
        say(f"{100 * found.let_through:.1f} % of photos of other classes are taken for a known one")
    width = max(cell_len(printable(each.name)) for each in found.classes)
    for each in found.classes:
        other = "" if each.known else ", the model does not know it"
        unknown = f", {each.unknown} called unknown" if each.unknown else ""
        say(f"{pad(printable(each.name), width)}  {each.right} of {each.photos}{unknown}{other}")
    for mistake in found.mistakes[:MOST_MISTAKES]:
        say(f"{count(mistake.photos, 'photo')} of {mistake.name} taken for {mistake.taken_for}")
    if len(found.mistakes) > MOST_MISTAKES:
        say(f"and {len(found.mistakes) - MOST_MISTAKES} more kinds of mistakes; --json lists them")
    say(*(f"skipped: {reason}" for reason in found.unreadable))
