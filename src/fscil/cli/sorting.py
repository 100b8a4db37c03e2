"""fscil sort: photos into folders by class."""

from __future__ import annotations

import json
import shlex
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fscil.cli.common import Device, Json, SkipUnreadable, checked_path, checked_paths, count, err, say
from fscil.cli.predicting import answered, loaded
from fscil.errors import UserError
from fscil.interrupts import Interrupted, unwind
from fscil.learner.listing import photo_files
from fscil.learner.names import UNKNOWN
from fscil.learner.sorting import Placed, carry_out, plan, read_list, write_list
from fscil.learner.sorting import undo as undo_list


def sort(
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", callback=checked_path, help="A model folder.")
    ] = None,
    photos: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PHOTO", callback=lambda paths: checked_paths(paths or []), help="Photos, or folders."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(callback=checked_path, help="The folder that gets a folder for each class.")
    ] = None,
    move: Annotated[bool, typer.Option("--move", help="Move photos rather than copy them.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; otherwise the plan is printed, and nothing is done.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, as without --yes.")] = False,
    undo: Annotated[
        Path | None, typer.Option(callback=checked_path, help="Take back what this list, which sort wrote, says.")
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Sort photos into folders by class.

    First comes the plan; --yes carries it out. Nothing is overwritten.

    \b
    fscil sort flowers photos/ --to sorted             the plan alone
    fscil sort flowers photos/ --to sorted --yes       copies; --move moves
    fscil sort --undo sorted/sorted-20250131-120000.json
    """
    if undo is not None:
        if model or photos or to or move or yes:
            raise UserError("--undo takes everything from its list; leave out the rest")
        take_back(undo, as_json)
        return
    if model is None or not photos or to is None:
        raise UserError("name a model, photos and --to, for instance: fscil sort flowers photos/ --to sorted")
    if yes and dry_run:
        raise UserError("give --yes or --dry-run, not both")
    paths = list(dict.fromkeys(photo_files(photos)))
    learner = loaded(model, device)
    answers = answered(learner, paths, skip_unreadable)
    classes = learner.classes_.tolist()
    placed = plan([path for path, _ in answers], [(each.name, each.probability) for _, each in answers], classes, to)
    done = None
    if yes and placed:
        from fscil.progress import stage_progress

        done = write_list(placed, to, move)
        with told_to_undo(done), stage_progress(err, "sort", len(placed)) as progress:
            carry_out(placed, done, move, progress.update)
    if as_json:
        facts = {"done": done is not None, "moved": move, "to": str(to), "list": str(done) if done else None}
        print(json.dumps({**facts, "photos": [asdict(each) for each in placed]}))
        return
    tell(placed, len(answers), to, move, done)


@contextmanager
def told_to_undo(path: Path) -> Iterator[None]:
    """After Ctrl-C, tell the user how to take back what was done."""
    before = signal.signal(signal.SIGINT, unwind)
    try:
        yield
    except Interrupted as error:
        raise Interrupted(f"{error}; take back what was done with: {undo_command(path)}") from error
    finally:
        signal.signal(signal.SIGINT, before)


def undo_command(path: Path) -> str:
    return shlex.join(["fscil", "sort", "--undo", str(path)])


def tell(placed: list[Placed], answered: int, to: Path, move: bool, done: Path | None) -> None:
    verb = "move" if move else "copy"
    if done is None:
        for each in placed:
            # of an unknown photo, the probability is that of its best class
            sure = "" if each.name == UNKNOWN else f"  ({100 * each.probability:.0f} %)"
            say(f"{each.photo}  ->  {to / each.to}{sure}")
    counts = ", ".join(f"{name} {n}" for name, n in Counter(each.name for each in placed).most_common())
    if answered > len(placed):
        say(f"{count(answered - len(placed), 'photo')} are where they belong already")
    if done is None:
        if placed:
            say(f"to {verb}: {count(len(placed), 'photo')} ({counts}); nothing was done yet: add --yes to do it")
        return
    say(f"{'moved' if move else 'copied'} {count(len(placed), 'photo')} ({counts})")
    say(f"take it back with: {undo_command(done)}")


def take_back(path: Path, as_json: bool) -> None:
    from fscil.progress import stage_progress

    with stage_progress(err, "undo", len(read_list(path)["photos"])) as progress:
        found = undo_list(path, progress.update)
    if as_json:
        print(json.dumps(asdict(found)))
        return
    say(f"took back {count(found.restored, 'photo')}", *(f"left: {each}" for each in found.left))
