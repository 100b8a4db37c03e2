"""Ctrl-C: exit code 130 and one line, whatever the process is doing.

It imports nothing of size, so that it can be in force before anything else is imported.
"""

from __future__ import annotations

import os
from contextlib import suppress
from signal import SIGINT, signal
from types import FrameType
from typing import NoReturn

SHOW_CURSOR = b"\n\x1b[?25h"  # a progress bar may have hidden it


class Interrupted(BaseException):
    """Ctrl-C. Typer keeps a KeyboardInterrupt to itself and exits with a code that depends on its version."""

    def __str__(self) -> str:
        return super().__str__() or "interrupted"


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exit at once: while there is nothing to lose, or at the second Ctrl-C.

    An exception would not do: imports and destructors may catch it, and threads may delay the exit.
    """
    if os.environ.get("RANK", "0") == "0":  # only one of torchrun's processes says so
        with suppress(OSError):  # standard error is closed or full
            os.write(2, (SHOW_CURSOR if os.isatty(2) else b"") + b"interrupted\n")
    os._exit(130)


def unwind(number: int, frame: FrameType | None) -> NoReturn:
    """Stop in good order, so that the user can be told how to continue."""
    signal(SIGINT, leave)
    raise Interrupted
