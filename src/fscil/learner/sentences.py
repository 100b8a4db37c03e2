"""What a lesson says, in sentences for people who never heard of an embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fscil.learner.lesson import Lesson

FEW = 5  # photos, with which most classes are learned well
IMBALANCE = 5  # times as many photos as the median of other classes, or as few
WELL = 0.8  # share of photos that are recognised when left out, from which on a class is learned well
NAMED = 3  # photos that a sentence names


def sentences_of(lesson: Lesson) -> tuple[str, ...]:
    beside = " beside those of its training" if lesson.base else ""
    said = [f"{lesson.name} has {_count(lesson.photos, 'photo')} now{beside}, {lesson.new} of them new."]
    said += _enough(lesson)
    if lesson.mistaken:
        taken = [f"{photo} for {other}" for photo, other in lesson.mistaken]
        said.append(f"Mistaken when left out: {_some(taken)}.")
    if lesson.closest is not None and lesson.rival is not None:
        pair = lesson.closest
        said.append(f"The nearest class is {lesson.rival}; the closest photos are {pair.photo} and its {pair.other}.")
    elif lesson.rival is not None:
        said.append(f"The nearest class is {lesson.rival}.")
    if lesson.repeated:
        said.append(f"{_some(lesson.repeated)} had been taught already and did not count again.")
    if lesson.near_duplicates:
        pairs = [f"{pair.photo} and {pair.other}" for pair in lesson.near_duplicates]
        said.append(f"These look the same: {_some(pairs, '; ')}. Different photos teach more.")
    if lesson.two_names:
        pairs = [f"{pair.photo} ({pair.other_class}: {pair.other})" for pair in lesson.two_names]
        said.append(f"The same photo under two names: {_some(pairs)}; move or forget one of them.")
    if lesson.unlike:
        said.append(f"{_some(lesson.unlike)} is unlike the other photos: is it {lesson.name}?")
    said += _balance(lesson)
    if lesson.unreadable:
        reasons = [each.partition(";")[0] for each in lesson.unreadable]
        said.append(f"{_count(len(lesson.unreadable), 'image')} left out: {_some(reasons, '; ')}.")
    return tuple(said)


def _enough(lesson: Lesson) -> list[str]:
    if lesson.photos == 1 and not lesson.base:
        return ["One photo cannot be checked against itself; teach a few more."]
    if lesson.classes == 1:
        return ["There is no other class yet to tell it from."]
    if lesson.accuracy is None:
        return []
    right = round(lesson.accuracy * lesson.photos)
    found = f"Each photo left out in turn, {right} of {lesson.photos} are recognised"
    if lesson.accuracy >= WELL:
        return [f"{found}: that is enough." if lesson.photos >= FEW else f"{found}; a few more would make sure."]
    return [f"{found}: teach more photos, most of all some that differ from these."]


def _balance(lesson: Lesson) -> list[str]:
    if lesson.median_photos is None or lesson.base:
        return []
    if lesson.photos >= IMBALANCE * lesson.median_photos:
        return [f"Other classes have about {lesson.median_photos:g}: they would gain more from new photos."]
    if lesson.photos * IMBALANCE <= lesson.median_photos:
        return [f"Other classes have about {lesson.median_photos:g} photos: it would gain from more."]
    return []


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def _some(items: Sequence[str], between: str = "") -> str:
    """The first few; between: what parts them, where each is more than a name."""
    named = list(items[:NAMED])
    if len(items) > NAMED:
        named.append(f"{len(items) - NAMED} more")
    if between:
        return between.join(named)
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
