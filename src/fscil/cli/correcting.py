"""fscil forget, rename, move, undo, hide-base and show-base: none of them needs torch."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fscil.cli.common import Json, Model, say

if TYPE_CHECKING:
    from fscil.learner import Taught


def forget(
    model: Model,
    name: Annotated[str | None, typer.Argument(metavar="[CLASS]", help="The class.")] = None,
    photo: Annotated[
        str | None, typer.Option(help="Forget one photo: its path, its file's name, or its hash's first digits.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Forget a class, or a single photo.

    \b
    fscil forget flowers tulip
    fscil forget flowers --photo IMG_0042.jpg
    fscil forget flowers tulip --photo IMG_0042.jpg    if other classes have such a photo, too
    """
    taught = opened(model)
    taught.forget(name, photo=given(photo))
    tell(taught, model, "forgot", as_json)


def rename(
    model: Model,
    name: Annotated[str, typer.Argument(metavar="CLASS", help="The class.")],
    to: Annotated[str, typer.Argument(metavar="NAME", help="Its new name.")],
    as_json: Json = False,
) -> None:
    """Give a class another name. If another class has that name, the two become one.

    \b
    fscil rename flowers tulip "red tulip"
    """
    taught = opened(model)
    taught.rename(name, to)
    tell(taught, model, "renamed", as_json)


def move(
    model: Model,
    photo: Annotated[str, typer.Argument(metavar="PHOTO", help="Its path, its file's name, or its hash.")],
    to: Annotated[str, typer.Argument(metavar="CLASS", help="The class that it belongs to, which may be new.")],
    of: Annotated[str | None, typer.Option("--from", help="The class that it has now, if several have it.")] = None,
    as_json: Json = False,
) -> None:
    """Move a taught photo to another class.

    \b
    fscil move flowers IMG_0042.jpg rose
    """
    taught = opened(model)
    taught.move(given(photo) or photo, to, name=of)
    tell(taught, model, "moved", as_json)


def undo(model: Model, as_json: Json = False) -> None:
    """Take the last step back; then the one before.

    \b
    fscil undo flowers
    fscil history flowers
    """
    done = opened(model).undo()
    if as_json:
        print(json.dumps({"model": str(model), "undone": asdict(done)}))
    else:
        say(f"undone: {done.verb} {done.what}".rstrip())


def hide_base(model: Model, as_json: Json = False) -> None:
    """Answer with taught classes alone.

    \b
    fscil hide-base runs/limit/model
    fscil show-base runs/limit/model
    """
    taught = opened(model)
    taught.hide_base(True)
    tell(taught, model, "base classes hidden:", as_json)


def show_base(model: Model, as_json: Json = False) -> None:
    """Answer with base classes again.

    \b
    fscil show-base runs/limit/model
    """
    taught = opened(model)
    taught.hide_base(False)
    tell(taught, model, "base classes hidden:", as_json)


def opened(model: Path) -> Taught:
    from fscil.learner import Taught

    return Taught(model)


def given(photo: str | None) -> str | Path | None:
    """A photo as typed; a leading ~ is a home folder."""
    return None if photo is None else os.path.expanduser(photo)


def tell(taught: Taught, model: Path, verb: str, as_json: bool) -> None:
    """What the last step was, and how it is taken back."""
    done = taught.history()[-1]
    if as_json:
        print(json.dumps({"model": str(model), "done": asdict(done)}))
    else:
        say(f"{verb} {done.what}; take it back with: {shlex.join(['fscil', 'undo', str(model)])}")
