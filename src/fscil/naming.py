"""Names that people type, and how messages show them: unknown ones get an error with suggestions."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import metadata

from fscil.errors import UserError

FEW = 8  # this many names still fit on a readable line
LONGEST = 80  # characters of a value that a message quotes


@functools.cache
def entry_points(group: str) -> metadata.EntryPoints:
    """What installed packages register; looking through all of them takes milliseconds, so it is done once."""
    return metadata.entry_points(group=group)


def quotable(value: object) -> str:
    """A value as a message can quote it: on one line, and not too long."""
    try:
        text = str(value)
    except ValueError:  # Python refuses to spell out whole numbers of more than 4,300 digits
        return "a number of thousands of digits"
    except RecursionError:
        return "a deeply nested value"
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[: LONGEST + 1])
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def printable(text: str) -> str:
    """Escape file and class names, which may contain line breaks, escape sequences or undecodable bytes."""
    unsafe = ("Cc", "Cs", "Zl", "Zp")
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in unsafe else char for char in text
    )


def choose(name: str, known: Iterable[str], what: str, *, where: str = "", see: str = "") -> str:
    """The name itself if it is known, otherwise a UserError with the nearest names, and with all if they are few.

    `where` names the file or dataset that contains the mistake; `see` says where many names are listed.
    """
    names = sorted(known)
    if name in names:
        return name
    hints = []
    if near := [repr(each) for each in get_close_matches(name.casefold(), names, n=3)]:
        hints.append(f"did you mean {' or '.join(filter(None, [', '.join(near[:-1]), near[-1]]))}?")
    if len(names) <= FEW:
        hints.append(f"known are {', '.join(names)}")
    elif not near:
        hints.append(see or f"none of the {len(names)} known names is like it")
    raise UserError(f"{where}{': ' if where else ''}unknown {what} '{quotable(name)}': {' '.join(hints)}")
