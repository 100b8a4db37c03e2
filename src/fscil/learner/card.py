"""The part of a model's card, README.md, that names what was taught. It follows the store, which is the truth."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from fscil.errors import UserError
from fscil.files import read_regular, write_atomically
from fscil.learner.store import COUNTER, Store
from fscil.naming import printable

CARD = "README.md"
BEGIN, END = "<!-- taught: written by fscil -->", "<!-- end of taught -->"
SECTION = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}\n?", re.DOTALL)
MOST_NAMED = 100  # classes that the card lists
MOST_BYTES = 2**22


def taught_section(store: Store) -> str:
    """Markdown: every taught class and how many photos taught it."""
    counts = sorted((name, len(places)) for name, places in store.classes())
    lines = [f"| {cell(name)} | {n} |" for name, n in counts[:MOST_NAMED]]
    if len(counts) > MOST_NAMED:
        lines.append(f"| and {len(counts) - MOST_NAMED:,} more | |")
    said = [f"{len(counts):,} taught class{'es' * (len(counts) != 1)}." if counts else "No class was taught yet."]
    if n := len(store.with_role(COUNTER)):
        said.append(f"{n:,} photo{'s' * (n != 1)} of none of them.")
    if store.hide_base:
        said.append("Base classes are hidden.")
    table = ["", "| class | photos |", "|---|---|", *lines] if counts else []
    return "\n".join([BEGIN, "## Taught", "", " ".join(said), *table, END, ""])


def update_card(folder: Path, store: Store) -> None:
    """Bring the card up to date, if there is one. That it cannot be written is no reason to refuse a lesson."""
    with suppress(OSError, ValueError, UserError):
        text = read_regular(folder / CARD, MOST_BYTES).decode()
        section = taught_section(store)
        found = SECTION.search(text)
        new = text[: found.start()] + section + text[found.end() :] if found else f"{text.rstrip()}\n\n{section}"
        if new != text:
            write_atomically(folder / CARD, new.encode())


def cell(text: str) -> str:
    """A name within a table, where it cannot be markup."""
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", printable(text)).replace("<", "&lt;").replace(">", "&gt;")
