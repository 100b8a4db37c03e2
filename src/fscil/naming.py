"""Names that people type: unknown ones get an error with suggestions."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from fscil.errors import UserError

FEW = 8  # this many names still fit on a readable line


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
    raise UserError(f"{where}{': ' if where else ''}unknown {what} {name!r}: {' '.join(hints)}")
