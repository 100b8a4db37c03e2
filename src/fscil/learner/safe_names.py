"""Class names as names of folders: on any system, within their folder, and different where the names are."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Sequence

from fscil.learner.names import CONTROL, UNKNOWN

LONGEST = 120  # bytes of a folder's name
FORBIDDEN = '<>:"/\\|?*'  # in names of files, on one system or another
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}


def safe_folders(names: Sequence[str]) -> dict[str, str]:
    """A folder for every class, different ones even where upper and lower case are the same; none for `unknown`."""
    taken, folders = {UNKNOWN}, {UNKNOWN: UNKNOWN}
    for name in sorted({*names} - {UNKNOWN}):
        safe = safe_name(name)
        folders[name] = free_name(safe, "", lambda each: each.casefold() in taken)
        taken.add(folders[name].casefold())
    return folders


def safe_name(name: str) -> str:
    """A class's name as the name of a folder on any system: one part of a path, neither hidden nor too long."""
    kept = (
        "_" if char in FORBIDDEN or unicodedata.category(char) in CONTROL else char
        for char in unicodedata.normalize("NFC", name)
    )
    safe = "".join(kept).strip().rstrip(". ")
    if safe.startswith("."):
        safe = "_" + safe[1:]
    if safe.partition(".")[0].casefold() in RESERVED:
        safe = f"_{safe}"
    if len(safe.encode()) > LONGEST:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        safe = safe.encode()[:LONGEST].decode(errors="ignore") + f" {digest}"
    return safe or "_"


def free_name(stem: str, suffix: str, is_taken: Callable[[str], bool]) -> str:
    """The name itself, or with the first number after it that is free."""
    name, number = f"{stem}{suffix}", 2
    while is_taken(name):
        name, number = f"{stem} ({number}){suffix}", number + 1
    return name
