"""fscil teach: a class from a handful of photos."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fscil.cli.common import Device, Json, SkipUnreadable, checked_path, checked_paths, count, err, say
from fscil.errors import UserError
from fscil.learner.listing import Photos, by_folder, photo_files

if TYPE_CHECKING:
    from fscil.learner import Learner, Lesson

MOST_NAMED = 10  # classes in the first line


def teach(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", callback=checked_path, help="A model folder; made if there is none."),
    ],
    photos: Annotated[
        list[Path],
        typer.Argument(
            metavar="PHOTO", callback=checked_paths, help="Photos, folders of them, or a folder of such folders."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="The class.  [default: the name of the photos' folder]")] = None,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="These are photos of none of the classes, to be called unknown.")
    ] = False,
    encoder: Annotated[
        str | None,
        typer.Option(help="Of a new model: auto (ImageNet's), embedded (for tiny images), timm:NAME, or a path."),
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Teach a class from a few photos.

    It says whether they are enough. The class is named after the photos' folder, or by --name. A model that does not
    exist is made.

    \b
    fscil teach flowers tulip/*.jpg
    fscil teach flowers --name "red rose" a.jpg b.jpg c.jpg
    fscil teach flowers photos/               every folder in it is a class
    fscil teach flowers --unknown meadow/     photos of none of them
    fscil undo flowers
    """
    classes = photos_by_class(photos, name, unknown)  # before the wait for torch
    from fscil.progress import stage_progress

    learner, is_new = opened(model, encoder, device)
    with stage_progress(err, "teach", sum(map(len, classes.values()))) as progress:
        facts: dict[str, Any] = {"model": str(model), "made": is_new}
        if unknown:
            facts["new"] = learner.teach_unknown(classes[""], skip_unreadable=skip_unreadable, progress=progress.update)
        else:
            lessons = learner.teach_all(classes, skip_unreadable=skip_unreadable, progress=progress.update)
            facts["lessons"] = [lesson.as_dict() for lesson in lessons]
    if is_new:
        learner.save(model)
    if as_json:
        print(json.dumps(facts))
        return
    undone_by = f"take it back with: {shlex.join(['fscil', 'undo', str(model)])}"
    made = f"made {model} and " if is_new else ""
    if not (facts["new"] if unknown else sum(lesson.new for lesson in lessons)):
        say("nothing new: these photos had been taught already", *([] if unknown else said(lessons)))
    elif unknown:
        say(f"{made}taught {count(facts['new'], 'new photo')} of no class; {undone_by}")
    else:
        after = "" if name is not None else f", named after {'their' if len(lessons) > 1 else 'its'} folder"
        say(f"{made}taught {taught(lessons)}{after * (len(lessons) < 2)}; {undone_by}")
        say(*said(lessons))


def said(lessons: Sequence[Lesson]) -> list[str]:
    return [sentence for lesson in lessons for sentence in lesson.sentences]


def photos_by_class(photos: Sequence[Path], name: str | None, unknown: bool) -> Photos:
    if unknown and name is not None:
        raise UserError("--unknown photos have no class; leave out --name")
    first = photos[0]
    if len(photos) > 1 and not os.path.lexists(first) and first.name == str(first) and not first.suffix:
        raise UserError(f"there is no photo {first}; if that is the class, give it as --name {shlex.quote(str(first))}")
    if unknown or name is not None:
        return {name or "": list(photo_files(photos))}
    return by_folder(photos)


def opened(model: Path, encoder: str | None, device: str | None) -> tuple[Learner, bool]:
    """The model's learner, or a new one."""
    from fscil.device import choose_device
    from fscil.learner import Learner, is_free

    where = choose_device(device).type
    if is_free(model):
        return Learner("auto" if encoder is None else encoder, device=where), True
    if encoder is not None:
        raise UserError(f"{model} has its encoder already; leave out --encoder, or name another model")
    return Learner.load(model, device=where), False


def taught(lessons: Sequence[Lesson]) -> str:
    """Every class and its new photos, in one line."""
    named = [f"{lesson.name} ({count(lesson.new, 'new photo')})" for lesson in lessons[:MOST_NAMED]]
    rest = len(lessons) - len(named)
    return ", ".join([*named, *([f"and {count(rest, 'more class', 'more classes')}"] if rest else [])])
