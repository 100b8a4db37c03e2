"""Names of classes: labels for people, which never become part of a path."""

from __future__ import annotations

import unicodedata

from fscil.errors import UserError
from fscil.naming import quotable

UNKNOWN = "unknown"  # the answer for a photo of no class
LONGEST = 200  # characters
CONTROL = ("Cc", "Cs", "Zl", "Zp")  # control characters, halves of characters, separators of lines and paragraphs


def check_name(name: object) -> str:
    """The name in Unicode's composed form, in which the same letters are the same class on any system."""
    if not isinstance(name, str):
        raise UserError(f"a class has a name, not a {type(name).__name__}; give a text")
    composed = unicodedata.normalize("NFC", str(name))
    if not composed.strip():
        raise UserError("a class needs a name; give one that is not empty")
    if any(unicodedata.category(char) in CONTROL for char in composed):
        raise UserError(f"the class name '{quotable(composed)}' has control characters in it; leave them out")
    if len(composed) > LONGEST:
        raise UserError(f"the class name '{quotable(composed)}' has more than {LONGEST} characters; shorten it")
    if composed == UNKNOWN:
        raise UserError(
            f"'{UNKNOWN}' is the answer for photos of no class; teach --unknown (in Python, teach_unknown) takes those"
        )
    return composed
