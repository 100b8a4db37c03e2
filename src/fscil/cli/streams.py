"""Standard output and error that may be closed, full, or unable to show a name."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO, cast

from fscil.errors import UserError


@contextmanager
def standard_streams() -> Iterator[None]:
    """While this lasts, output that cannot be written is a user's error, and progress that cannot is skipped."""
    reserve_numbers()
    out, err = sys.stdout or os.fdopen(1, "w", closefd=False), sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (out, err):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names that the terminal cannot show are not an error
    with (
        redirect_stdout(cast(TextIO, Guarded(out, refuse))),
        redirect_stderr(cast(TextIO, Guarded(err, ignore))),
    ):
        yield


def reserve_numbers() -> None:
    """Keep the number of a closed stream from the next file that is opened: libraries would print into that file."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # takes the smallest number that is free; writing to it still fails


class Guarded:
    """A stream that hands its failure over instead of raising it; from then on it leads nowhere."""

    def __init__(self, stream: TextIO, on_failure: Callable[[OSError], None]) -> None:
        self.stream = stream
        self.on_failure = on_failure
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        self.attempt(lambda: self.stream.write(text))
        return len(text)

    def flush(self) -> None:
        self.attempt(self.stream.flush)

    def attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            self.failure = error
            with suppress(OSError):  # otherwise the interpreter, which flushes once more on exit, would complain
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.stream.fileno())
                os.close(nowhere)
        if self.failure is not None:  # every time, since libraries that print may catch what it raises
            self.on_failure(self.failure)


def refuse(error: OSError) -> None:
    if error.errno == errno.EPIPE:  # the reader has seen enough (`| head`)
        sys.exit(1)
    raise UserError(f"cannot write to standard output ({error.strerror}); send it somewhere else") from error


def ignore(error: OSError) -> None:
    """A run is worth more than its progress."""
