"""Evaluation: how often photos whose class is known are named right, and what the others are taken for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from fscil.errors import UserError
from fscil.learner.knowledge import Knowledge
from fscil.learner.leave_one_out import chosen, held_out
from fscil.learner.names import UNKNOWN, check_name
from fscil.naming import quotable
from fscil.pictures import Picture

if TYPE_CHECKING:
    from fscil.learner.embedding import Seen
    from fscil.learner.learner import Learner

MOST_NAMED = 5


@dataclass(frozen=True)
class ClassScore:
    name: str
    photos: int
    right: int
    unknown: int  # of them, photos that were called unknown
    known: bool  # whether the learner has the class; otherwise `unknown` is the right answer


@dataclass(frozen=True)
class Mistake:
    name: str
    taken_for: str
    photos: int


@dataclass(frozen=True)
class Wrong:
    """A photo that was mistaken."""

    photo: str  # its path; empty if it has none
    name: str
    taken_for: str
    probability: float


@dataclass(frozen=True)
class Evaluation:
    photos: int
    right: int
    accuracy: float  # share of right answers, where `unknown` is one
    known_photos: int  # of classes that the learner has
    best_accuracy: float | None  # of those, share whose best class is right, if none may be unknown
    called_unknown: float | None  # of those, share that is called unknown
    let_through: float | None  # share of photos of other classes that are given a class
    classes: tuple[ClassScore, ...]
    mistakes: tuple[Mistake, ...]  # the commonest first
    wrong: tuple[Wrong, ...]
    unreadable: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def left_out(knowledge: Knowledge) -> tuple[list[ClassScore], list[Mistake]]:
    """What the learner says of photos that it was taught, each left out in turn; of some, where there are many."""
    with knowledge.lock:
        store, columns = knowledge.refresh(), knowledge.columns()
        held = held_out(store, knowledge.rows, chosen(store, knowledge.model), columns.visible)
        unknown = knowledge.measured()[1]
    use = held.known & columns.visible[held.own]
    truths = [columns.names[i] for i in held.own[use].tolist()]
    logits = held.logits[use]
    answers = [columns.names[i] for i in logits.argmax(1).tolist()] if len(truths) else []
    if unknown.threshold is not None:
        low = unknown.scores(logits) < unknown.threshold
        answers = [UNKNOWN if is_low else name for name, is_low in zip(answers, low.tolist(), strict=True)]
    counts, right, missed = Counter(truths), Counter[str](), Counter[str]()
    for name, answer in zip(truths, answers, strict=True):
        right[name] += name == answer
        missed[name] += answer == UNKNOWN
    scores = [ClassScore(name, n, right[name], missed[name], known=True) for name, n in sorted(counts.items())]
    return scores, ranked((name, answer) for name, answer in zip(truths, answers, strict=True) if name != answer)


def ranked(mistakes: Iterable[tuple[str, str]]) -> list[Mistake]:
    """The commonest first."""
    counted = sorted(Counter(mistakes).items(), key=lambda item: (-item[1], item[0]))
    return [Mistake(*pair, n) for pair, n in counted]


def evaluate(
    learner: Learner,
    photos: Mapping[str, Sequence[Picture]],
    *,
    skip_unreadable: bool = False,
    progress: Seen | None = None,
) -> Evaluation:
    """Photos by class. Those of a class that the learner does not have, and of `unknown`, ought to be unknown."""
    pairs = [
        (name if name == UNKNOWN else check_name(name), photo) for name, several in photos.items() for photo in several
    ]
    classes = set(learner.classes_.tolist())
    truths = [name for name, _ in pairs]
    if not classes & {*truths}:
        given, known = (", ".join(map(quotable, sorted(names)[:MOST_NAMED])) for names in ({*truths}, classes))
        raise UserError(f"no class of the model is among {given}; it has {known or 'none yet'}")
    answers, bad, wrong = [], list[str](), list[Wrong]()
    found = learner.predict_each([photo for _, photo in pairs], rivals=0)
    for (name, photo), answer in zip(pairs, found, strict=True):
        if isinstance(answer, UserError):
            if not skip_unreadable:
                raise answer
            bad.append(str(answer))
        else:
            answers.append((name, answer))
            if answer.name != (name if name in classes else UNKNOWN):
                path = str(photo) if isinstance(photo, str | PathLike) else ""
                wrong.append(Wrong(path, name, answer.name, answer.probability))
        if progress is not None:
            progress(len(answers) + len(bad))
    if not answers:
        raise UserError(f"no photo can be read: {bad[0]}")

    def wanted(name: str) -> str:
        return name if name in classes else UNKNOWN

    own = [(name, each) for name, each in answers if name in classes]
    others = [each for name, each in answers if name not in classes]
    right = len(answers) - len(wrong)
    mistakes = ranked((each.name, each.taken_for) for each in wrong)
    scores = []
    for name in dict.fromkeys(truths):
        mine = [each for other, each in answers if other == name]
        unknown = sum(each.name == UNKNOWN for each in mine)
        scores.append(
            ClassScore(name, len(mine), sum(each.name == wanted(name) for each in mine), unknown, name in classes)
        )
    return Evaluation(
        photos=len(answers),
        right=right,
        accuracy=right / len(answers),
        known_photos=len(own),
        best_accuracy=sum(each.best == name for name, each in own) / len(own) if own else None,
        called_unknown=sum(each.name == UNKNOWN for _, each in own) / len(own) if own else None,
        let_through=sum(each.name != UNKNOWN for each in others) / len(others) if others else None,
        classes=tuple(scores),
        mistakes=tuple(mistakes),
        wrong=tuple(wrong),
        unreadable=tuple(bad),
    )
