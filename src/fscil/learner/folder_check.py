"""check: all problems of a folder of photos at once, what fit would do with it, and how long that would take."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from fscil.device import choose_device
from fscil.errors import UserError
from fscil.files import file_name_bytes
from fscil.learner.photo_check import Seen, counted, examine, merged
from fscil.learner.photo_folder import BAD, NOTE, STOP, Problem, read_folder
from fscil.learner.plan import Plan, held_out_of, measure_speed, plan_for
from fscil.learner.sources import model_from_nothing
from fscil.model import Model
from fscil.progress import duration

USUAL_SIZE = 256, 32  # stored and seen, where there is no encoder to ask


@dataclass(frozen=True)
class Check:
    folder: str
    layout: str
    classes: dict[str, int]  # photos to learn from, by class
    test_photos: int  # kept apart by the user, never learned
    problems: tuple[Problem, ...]
    plan: Plan | None  # None: nothing can be learned from this folder, or there is no encoder
    sentences: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether fit would go on without being told to."""
        return self.plan is not None and all(problem.level == NOTE for problem in self.problems)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}

    def __str__(self) -> str:
        return "\n".join(self.sentences)


@dataclass(frozen=True)
class Material:
    """What fit learns from: photos that can be used, and those of them that choices are made by."""

    checked: Check
    train: list[Seen]
    held: list[bool]  # by photo of `train`
    test: list[Seen]
    model: Model | None


def check(
    folder: str | os.PathLike[str],
    *,
    encoder: str | os.PathLike[str] = "auto",
    device: str = "cpu",
    finetune: bool | None = None,
    console: Console | None = None,
) -> Check:
    """Look at every photo of a folder; a UserError only if there is no such folder."""
    return look_at(folder, encoder, device, finetune, console or Console(stderr=True, quiet=True)).checked


def look_at(
    folder: str | os.PathLike[str],
    encoder: str | os.PathLike[str],
    device: str,
    finetune: bool | None,
    console: Console,
) -> Material:
    found = read_folder(folder)
    model, more = None, list[Problem]()
    try:
        model = model_from_nothing(encoder).to(choose_device(device))
    except UserError as error:
        more.append(Problem("encoder", STOP, str(error)))
    stored, size = USUAL_SIZE if model is None else (model.spec.stored_size, model.spec.input_size)
    usable, problems = examine(found, stored, size, console)
    problems += more
    train = [each for each in usable if each.photo.part != "test"]
    test = [each for each in usable if each.photo.part == "test"]
    counts = counted(each.photo for each in train)
    held = hold_out(train)
    plan = None
    if model is not None and not any(problem.level == STOP for problem in problems):
        plan = plan_for(counts, sum(held), model, measure_speed(model), device, finetune)
    sentences = _sentences(found.layout, counts, len(test), problems, plan)
    checked = Check(os.fspath(folder), found.layout, counts, len(test), tuple(problems), plan, sentences)
    return Material(checked, train, held, test, model)


def hold_out(train: Sequence[Seen]) -> list[bool]:
    """A fifth of every class, by a digest of the name, so that more photos move few others to the other part.

    Where the user has held photos out (val/), those of its class are taken, if any are left to learn from.
    """
    chosen = [False] * len(train)
    by_class: dict[str, list[int]] = {}
    for i, each in enumerate(train):
        by_class.setdefault(each.photo.name, []).append(i)
    for places in by_class.values():
        own = [i for i in places if train[i].photo.part == "held"]
        if not own or len(own) == len(places):
            order = sorted(places, key=lambda i: hashlib.sha256(file_name_bytes(train[i].photo.key)).digest())
            own = order[: held_out_of(len(places))]
        for i in own:
            chosen[i] = True
    return chosen


def _sentences(
    layout: str, counts: dict[str, int], test: int, problems: Sequence[Problem], plan: Plan | None
) -> tuple[str, ...]:
    said = [f"{_count(len(counts), 'class', 'classes')}, {_count(sum(counts.values()), 'photo', 'photos')} ({layout})."]
    if counts:
        least, most = min(counts.values()), max(counts.values())
        said[0] = f"{said[0][:-1]}, {f'{least} to {most}' if least < most else least} of each class."
    if test:
        said.append(f"{test} photos of test/ are never learned; fit measures by them in the end.")
    words = {NOTE: "note", BAD: "bad", STOP: "cannot go on"}
    for level in (STOP, BAD, NOTE):
        said += [f"{words[level]}: {each.sentence}" for each in merged(problems) if each.level == level]
    if any(problem.level == BAD for problem in problems) and plan is not None:
        said.append("fit refuses what is bad unless it is told to leave it out (--skip-bad, in Python skip_bad=True).")
    if plan is not None:
        said += ["fit would do this:", *plan.sentences, f"All of it takes about {duration(max(1, plan.seconds))} here."]
    return tuple(said)


def _count(n: int, one: str, several: str) -> str:
    return f"{n} {one if n == 1 else several}"
