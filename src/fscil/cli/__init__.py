"""The command line: its verbs, and how it ends."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

from fscil.cli.common import err, shortened
from fscil.cli.correcting import forget, hide_base, move, rename, show_base, undo
from fscil.cli.data import data_app
from fscil.cli.evaluating import evaluate
from fscil.cli.exporting import export
from fscil.cli.fitting import check, fit
from fscil.cli.knowing import classes, history
from fscil.cli.listing import encoders, methods
from fscil.cli.predicting import predict
from fscil.cli.reporting import report
from fscil.cli.running import compare, reproduce, run
from fscil.cli.sorting import sort
from fscil.cli.streams import standard_streams
from fscil.cli.teaching import teach
from fscil.errors import LostContact, UserError
from fscil.interrupts import Interrupted, leave
from fscil.naming import printable

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="""Few-shot class-incremental learning: train once, then teach new classes from a few images each.

    \b
    fscil fit photos/ --out flowers   learn a folder of photos, class by class
    fscil teach flowers tulip/*.jpg   teach one more class from a few of them
    fscil predict flowers photo.jpg   name what a photo shows
    fscil run limit glyphs            a first benchmark run, about a minute
    fscil compare glyphs --seeds 3    methods side by side
    """,
)  # fmt: skip
LEARNER = (
    check, fit, teach, predict, sort, evaluate, classes, history, undo, forget, rename, move, hide_base, show_base,
    export,
)  # fmt: skip
for verb in (*LEARNER, run, compare, reproduce, report, methods, encoders):
    app.command()(verb)
app.add_typer(data_app, name="data", help="List, prepare and verify datasets.")

# click's, or that of the click inside newer versions of typer
UsageError: Any = typer.BadParameter.__base__


def main() -> None:
    """A user's mistake gives one line and exit code 2; anything else is a bug and keeps its traceback."""
    signal.signal(signal.SIGINT, leave)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # of photos with damaged notes, which are read all the same
    with standard_streams():
        try:
            with process_group():
                call_verb()
        except UserError as error:
            fail(f"error: {error}", 2, refusal=str(error))
        except LostContact as error:
            fail(f"error: {error}", 1)
        except Interrupted as error:
            fail(str(error), 130)


def call_verb() -> NoReturn:
    """Parse the arguments, call the verb and exit."""
    try:
        code = app(standalone_mode=False, prog_name="fscil")
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            sys.exit(error.exit_code)
        raise UserError(usage(error)) from error
    sys.stdout.flush()  # now, while it can still be told that this is impossible
    sys.exit(code)


def usage(error: Any) -> str:
    """One line from typer's message and where to read more."""
    message = " ".join(error.format_message().split()).rstrip(".")
    asked = f"{error.ctx.command_path} --help" if error.ctx else "fscil --help"
    return f"{message[:1].lower()}{message[1:]}; see: {asked}"


@contextmanager
def process_group() -> Iterator[None]:
    """Join the process group if torchrun started this process; otherwise torch is not even imported."""
    if not started_by_torchrun():
        yield
        return
    from fscil import distributed

    try:
        distributed.initialise()
        with distributed.print_on_rank_zero_only():
            yield
    except SystemExit as leaving:
        if not leaving.code:
            distributed.shut_down()
        raise
    except (UserError, LostContact):
        raise
    except Exception:
        if distributed.is_single_process():
            raise
        traceback.print_exc()
        distributed.exit_process(1)  # the other ranks notice


def started_by_torchrun() -> bool:
    return "RANK" in os.environ


def fail(line: str, code: int, refusal: str | None = None) -> NoReturn:
    """Print one line, however many processes there are, and exit."""

    def say() -> None:
        err.print(shortened(printable(line)), style="bold red" if line.startswith("error:") else "", soft_wrap=True)
        signal.signal(signal.SIGINT, lambda *_: os._exit(code))  # it is exiting already; another line would not help

    if not started_by_torchrun():
        say()
        sys.exit(code)
    from fscil import distributed

    if distributed.is_reporter(refusal):
        say()
    distributed.exit_process(code)
