"""What the verbs of the command line share.

No cli file imports torch at its top, so that --help is quick: verbs import what they need when they are called.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len
from rich.console import Console

from fscil.errors import LostContact

Root = Annotated[Path | None, typer.Option(help="Folder of datasets.  [default: the environment variable FSCIL_DATA]")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda.  [default: cuda if there is one]")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

# brackets and colons in names and paths are what they are, never markup
out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)


class Interrupted(BaseException):
    """Ctrl-C. Typer keeps a KeyboardInterrupt to itself and exits with a code that depends on its version."""

    def __str__(self) -> str:
        return super().__str__() or "interrupted"


@contextmanager
def going_on_by(command: str) -> Iterator[None]:
    """Whoever presses Ctrl-C or loses a process is told how to go on."""
    try:
        yield
    except (Interrupted, LostContact) as error:
        raise type(error)(f"{error}; go on with: {command}") from error


def printable(text: str) -> str:
    """File and class names may hold anything: line breaks, escape sequences, bytes that are no text."""
    unsafe = ("Cc", "Cs", "Zl", "Zp")
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in unsafe else char for char in text
    )


def pad(text: str, width: int) -> str:
    """As str.ljust, but counting the cells that a terminal needs for it."""
    return text + " " * (width - cell_len(text))


def print_descriptions(descriptions: Mapping[str, str]) -> None:
    width = max(map(cell_len, descriptions), default=0)
    for name, description in descriptions.items():
        print(printable(f"{pad(name, width)}  {description}"))
