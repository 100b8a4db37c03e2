"""fscil classes and history: what a model knows, and how it came to. Without --measure they need no torch."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len

from fscil.cli.common import Json, Model, count, pad, say
from fscil.cli.correcting import opened
from fscil.naming import choose, printable

if TYPE_CHECKING:
    from fscil.learner import Confidence, Taught, Unknown


def history(model: Model, as_json: Json = False) -> None:
    """List what was taught and changed, the oldest first.

    \b
    fscil history flowers
    fscil undo flowers          takes the last line back
    """
    steps = opened(model).history()
    if as_json:
        print(json.dumps([asdict(step) for step in steps]))
        return
    if not steps:
        say("nothing was taught yet")
    for step in steps:
        say(f"{step.when.replace('T', ' ').removesuffix('+00:00')} UTC  {step.verb}  {step.what}".rstrip())


def classes(
    model: Model,
    name: Annotated[str | None, typer.Argument(metavar="[CLASS]", help="List this class's photos.")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Leave photos out in turn: accuracy, threshold, confidence.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List a model's classes and their photos.

    \b
    fscil classes flowers
    fscil classes flowers tulip      its photos
    fscil classes flowers --measure  how sure answers are
    """
    taught = opened(model)
    if name is not None:
        list_photos(taught, name, as_json)
        return
    known, counters = taught.classes(), taught.counter_examples()
    facts: dict[str, Any] = {"classes": [asdict(each) for each in known], "counter_examples": counters}
    if measure:
        from fscil.learner import Learner

        learner = Learner.load(model)
        unknown, confidence = learner.unknown, learner.confidence
        facts |= {"unknown": unknown.as_dict(), "confidence": confidence.as_dict()}
        scores = {each.name: each for each in learner.left_out()[0]}
        for each in facts["classes"]:
            score = scores.get(each["name"])
            each |= {"tried": score.photos if score else 0, "recognised": score.right if score else 0}
    if as_json:
        print(json.dumps(facts))
        return
    if not known:
        say("no class was taught yet")
        return
    names = [printable(each.name) for each in known]
    width = max(map(cell_len, names))
    for shown, each, fact in zip(names, known, facts["classes"], strict=True):
        kind = "base class" + (", hidden" if each.hidden else "") if each.base else count(each.photos, "photo")
        tried = f"  {fact['recognised']} of {fact['tried']} recognised when left out" if fact.get("tried") else ""
        print(f"{pad(shown, width)}  {kind}{tried}")
    if counters:
        print(f"{count(counters, 'counter-example')} of none of them")
    if measure:
        say(*measured(unknown, confidence))


def list_photos(taught: Taught, name: str, as_json: bool) -> None:
    photos = taught.photos(name)
    if not photos:
        choose(name, [each.name for each in taught.classes()], "class")
    if as_json:
        print(json.dumps([asdict(photo) for photo in photos]))
        return
    if not photos:
        say(f"no photos of {name} are kept")
    for photo in photos:
        say(f"{photo.sha256[:8]}  {photo.file or '(no file)'}")


def measured(unknown: Unknown, confidence: Confidence) -> list[str]:
    lines = [f"unknown: {unknown.reason}"]
    if unknown.threshold is not None:
        lines = [
            f"unknown: photos below a score of {unknown.threshold:.3g}; {100 * (unknown.kept or 0):.0f} % of known "
            f"photos are above it, and {100 * (unknown.let_through or 0):.0f} % of photos of classes that were left out"
        ]
    if confidence.temperature is None:
        return [*lines, f"confidence: {confidence.reason}"]
    errors = {"base classes": confidence.error_base, "taught classes": confidence.error_taught}
    said = [f"{what} {100 * error:.1f} %" for what, error in errors.items() if error is not None]
    return [*lines, f"confidence: temperature {confidence.temperature:.3g}; calibration error {', '.join(said)}"]
