"""What the commands share.

No cli file imports torch at its top, so that --help is quick: commands import what they need when they are called.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len
from rich.console import Console

from fscil.errors import LostContact, UserError
from fscil.interrupts import Interrupted, unwind
from fscil.naming import printable

LONGEST_SHOWN = 60  # characters of a name that is too long


def checked_path(path: Path | None) -> Path | None:
    """A path as typed: a leading ~ is a home folder, and what cannot be the name of a file is refused."""
    if path is None:
        return None
    whole = os.path.expanduser(path)
    if whole.startswith("~"):
        raise typer.BadParameter(f"there is no user {path.parts[0][1:]}; write the whole path")
    try:
        os.lstat(whole)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise typer.BadParameter(f"{whole[:LONGEST_SHOWN]}... is too long for a file name") from error
    return Path(whole)


def checked_paths(paths: list[Path]) -> list[Path]:
    return [checked_path(path) or path for path in paths]


Root = Annotated[
    Path | None,
    typer.Option(callback=checked_path, help="Folder of datasets.  [default: the environment variable FSCIL_DATA]"),
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda.  [default: cuda if available]")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", callback=checked_path, help="A model folder, or the run folder around it.")
]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", help="Go on without photos that cannot be read, and name them.")
]

# brackets and colons in names and paths are literal, never markup
out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)


@contextmanager
def going_on_by(command: str) -> Iterator[None]:
    """After Ctrl-C or a lost process, tell the user how to continue."""
    before = signal.signal(signal.SIGINT, unwind)
    try:
        yield
    except (Interrupted, LostContact) as error:
        raise type(error)(f"{error}; continue with: {command}") from error
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def shown_again_by(command: str) -> Iterator[None]:
    """If results cannot be printed, tell the user that they are kept."""
    try:
        yield
        sys.stdout.flush()
    except UserError as error:
        raise UserError(f"{error}; the results are kept and shown again by: {command}") from error


def shortened(line: str, most: int = 1000) -> str:
    """Both ends of a line that is too long to read: it holds a name or a number that somebody mistyped."""
    return line if len(line) <= most else f"{line[: most // 2]} ... {line[-most // 2 :]}"


def pad(text: str, width: int) -> str:
    """Like str.ljust, but counting terminal cells."""
    return text + " " * (width - cell_len(text))


def print_descriptions(descriptions: Mapping[str, str]) -> None:
    width = max(map(cell_len, descriptions), default=0)
    for name, description in descriptions.items():
        print(printable(f"{pad(name, width)}  {description}"))


def say(*lines: str) -> None:
    """Lines that hold names of files or classes."""
    for line in lines:
        print(printable(line))


def count(n: int, noun: str, plural: str = "") -> str:
    return f"{n:,} {noun if n == 1 else plural or f'{noun}s'}"
