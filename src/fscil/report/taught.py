"""The report of a model that was taught: named classes, what is taken for what, photos that were mistaken."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from fscil.report.markup import Cell, Markup, bar, details, join, table, tag

MOST_MISTAKES = 20
FEW = 60  # classes that are shown without unfolding


@dataclass(frozen=True)
class ClassLine:
    name: str
    kind: str  # taught, base class, or base class, hidden
    photos: int  # that taught it; 0: unknown, as for a class of the training
    tried: int  # photos that were left out in turn, or tested
    right: int


@dataclass(frozen=True)
class Confused:
    name: str
    taken_for: str
    photos: int


@dataclass(frozen=True)
class Thumbnail:
    jpeg: bytes
    file: str
    name: str
    taken_for: str


@dataclass(frozen=True)
class Test:
    """Photos that were not taught, whose classes are known."""

    title: str
    sentence: str
    classes: Sequence[ClassLine]
    mistakes: Sequence[Confused]
    thumbnails: Sequence[Thumbnail]


@dataclass(frozen=True)
class TaughtPage:
    title: str
    headline: Sequence[str]  # sentences; the first opens the page
    classes: Sequence[ClassLine]
    mistakes: Sequence[Confused]
    history: Sequence[tuple[str, str, str]]  # when, verb, what
    test: Test | None = None


def taught_parts(shown: TaughtPage) -> list[Markup]:
    """The page below its title, the simplest first."""
    first, *rest = shown.headline
    parts = [tag("p", first, class_="headline"), *(tag("p", text, class_="soft") for text in rest)]
    if shown.test is not None:
        parts += _tested(shown.test)
    if shown.classes:
        parts += [tag("h2", "Classes"), _class_table(shown.classes, "recognised when left out", photos=True)]
    parts += _confused("What is taken for what, when it is left out", shown.mistakes)
    if shown.history:
        steps = [[when, verb, what] for when, verb, what in reversed(shown.history)]
        parts.append(details("What was taught, the latest first", table(["when", "", ""], steps, "text wide")))
    return parts


def _tested(test: Test) -> list[Markup]:
    parts = [tag("h2", test.title), tag("p", test.sentence, class_="headline")]
    parts.append(_class_table(test.classes, "right", photos=False))
    parts += _confused("What is taken for what", test.mistakes)
    if test.thumbnails:
        pictures = [_picture(each) for each in test.thumbnails]
        parts += [tag("h3", "Photos that were mistaken"), tag("div", *pictures, class_="thumbnails")]
    return parts


def _class_table(classes: Sequence[ClassLine], what: str, photos: bool) -> Markup:
    most = max((each.photos for each in classes), default=0)
    photos = photos and most > 0
    rows = []
    for each in classes:
        counted: list[str] = [bar(each.photos, most, str(each.photos)) if each.photos else ""] if photos else []
        rows.append([each.name, each.kind, *counted, _share(each)])
    shown = table(["class", "", *(["photos"] * photos), what], rows, "text classes")
    return shown if len(rows) <= FEW else details(f"{len(rows):,} classes", shown)


def _share(each: ClassLine) -> Cell:
    return bar(each.right, each.tried, f"{each.right} of {each.tried}" if each.tried else "not tried")


def _confused(title: str, mistakes: Sequence[Confused]) -> list[Markup]:
    if not mistakes:
        return []
    rows = [[each.name, each.taken_for, str(each.photos)] for each in mistakes[:MOST_MISTAKES]]
    parts = [tag("h3", title), table(["class", "taken for", "photos"], rows, "text")]
    if len(mistakes) > MOST_MISTAKES:
        rest = sum(each.photos for each in mistakes[MOST_MISTAKES:])
        parts.append(
            tag("p", f"and {rest:,} more photos, in {len(mistakes) - MOST_MISTAKES:,} other ways", class_="soft")
        )
    return parts


def _picture(each: Thumbnail) -> Markup:
    data = f"data:image/jpeg;base64,{base64.b64encode(each.jpeg).decode()}"
    caption = join([each.file, Markup("<br>"), f"{each.name}, taken for ", tag("b", each.taken_for)])
    return tag("figure", tag("img", src=data, alt=f"{each.name}: {each.file}"), tag("figcaption", caption))
