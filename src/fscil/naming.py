"""Names that people type: unknown ones get an error that says what would have been right."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from fscil.errors import UserError


def choose(name: str, known: Iterable[str], what: str) -> str:
    """The name itself if it is known, otherwise a UserError with the nearest right one and all of them."""
    names = sorted(known)
    if name in names:
        return name
    near = get_close_matches(name.casefold(), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UserError(f"unknown {what} {name!r}: {hint}known are {', '.join(names)}")
