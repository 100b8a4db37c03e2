"""The command line: parses, calls, prints."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from fscil import distributed, runs
from fscil.cli_data import data_app
from fscil.compare import compare as compare_methods
from fscil.config import resolve, to_toml
from fscil.errors import LostContact, UserError
from fscil.report.html import write_report
from fscil.reproduce import names as reproductions
from fscil.reproduce import reproduce as reproduce_one
from fscil.results import Result, read_result, session_table

app = typer.Typer(
    help="Few-shot class-incremental learning: train once, then teach new classes from a few images each.",
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip
app.add_typer(data_app, name="data", help="List, prepare and verify datasets.")

# brackets and colons in names and paths are what they are, never markup
out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)

Root = Annotated[Path | None, typer.Option(help="Folder of datasets; default: the environment variable FSCIL_DATA.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; default: cuda where there is one.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings, e.g. epochs=10.")]
Every = Annotated[float, typer.Option("--checkpoint-every", help="Seconds between checkpoints.")]


def command_line() -> str:
    return shlex.join(["fscil", *sys.argv[1:]])


@app.command()
def run(
    method: Annotated[
        str | None, typer.Argument(help="A method or preset: limit, limit-paper, decoupled-cosine, ...")
    ] = None,
    benchmark: Annotated[str | None, typer.Argument(help="glyphs, digits, cifar100, folder, ...")] = None,
    overrides: Overrides = None,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Run folder; default: a new one under runs/.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    device: Device = None,
    root: Root = None,
    show_config: Annotated[bool, typer.Option("--show-config", help="Print all settings with their reasons.")] = False,
    checkpoint_every: Every = 20.0,
    as_json: Json = False,
) -> None:
    """Run one method on one benchmark.

    \b
    fscil run limit glyphs
    fscil run limit cifar100 --seed 2 --out runs/limit-2
    fscil run limit-paper cifar100 meta_steps=1000 --show-config
    fscil run limit folder path=photos way=3 shot=5
    fscil run --resume runs/limit-2
    """
    if resume is not None:
        if method or benchmark or overrides or out_folder or show_config or seed != 1:
            raise UserError(
                "--resume takes all from the run folder; leave out method, benchmark and settings, --seed and --out"
            )
        where = runs.RunEnvironment(runs.choose_device(device), resume, root, checkpoint_every, command_line())
        with going_on_by(f"fscil run --resume {resume}"):
            result = runs.resume(where, err)
        show(result, resume, as_json)
        return
    if not method or not benchmark:
        raise UserError("name a method and a benchmark, for instance: fscil run limit glyphs")
    config = resolve(method, benchmark, overrides or [], seed)
    if show_config:
        print(to_toml(config, explain=True), end="")
        return
    new = Path("runs") / f"{method}-{benchmark}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = out_folder or distributed.broadcast(lambda: new)
    where = runs.RunEnvironment(runs.choose_device(device), folder, root, checkpoint_every, command_line())
    with going_on_by(f"fscil run --resume {folder}"):
        result = runs.start(config, where, err)
    show(result, folder, as_json)


def show(result: Result, folder: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"folder": str(folder), **vars(result)}))
        return
    out.print(session_table([result]), crop=False)
    if result.note:
        out.print(f"note: {result.note}")
    out.print(
        f"model   {folder / 'model'}\ncurve   {folder / 'curve.png'}\nreport  {folder / 'report.html'}", soft_wrap=True
    )


@app.command()
def compare(
    benchmark: Annotated[str, typer.Argument(help="glyphs, digits, cifar100, folder, ...")],
    overrides: Overrides = None,
    methods: Annotated[str, typer.Option(help="Comma-separated methods or presets.")] = "limit,decoupled-cosine",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 5,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 1,
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder of the runs; finished ones are not repeated.")
    ] = Path("runs/compare"),
    device: Device = None,
    root: Root = None,
    checkpoint_every: Every = 20.0,
    as_json: Json = False,
) -> None:
    """Compare methods over seeds: a table and curves, beside the paper's rows.

    \b
    fscil compare glyphs --methods limit,decoupled-cosine --seeds 5
    fscil compare cifar100 --methods limit,limit-paper --seeds 3 --first-seed 6 --out runs/cifar
    """  # fmt: skip
    where = runs.RunEnvironment(runs.choose_device(device), out_folder, root, checkpoint_every, command_line())
    with going_on_by("the same command"):
        chosen = range(first_seed, first_seed + seeds)
        comparison = compare_methods(benchmark, methods.split(","), chosen, overrides or [], where, err)
    if as_json:
        print(json.dumps([vars(result) for result in comparison.results]))
        return
    out.print(session_table(comparison.results), crop=False)
    for line in comparison.lines:
        out.print(line, soft_wrap=True)


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which table; leave out to list them.")] = None,
    overrides: Overrides = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 1,
    out_folder: Annotated[Path, typer.Option("--out")] = Path("runs/reproduce"),
    device: Device = None,
    root: Root = None,
) -> None:
    """Regenerate a table or figure of the paper; without a name, list them.

    \b
    fscil reproduce
    fscil reproduce ablation --seeds 3 --first-seed 6
    """
    if name is None:
        for known, title in reproductions().items():
            out.print(f"{known:12} {title}", soft_wrap=True)
        return
    where = runs.RunEnvironment(runs.choose_device(device), out_folder, root, command=command_line())
    with going_on_by("the same command"):
        reproduce_one(name, range(first_seed, first_seed + seeds), overrides or [], where, out, err)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders or result.json files.")],
    out_file: Annotated[Path, typer.Option("--out", help="The HTML file.")] = Path("report.html"),
) -> None:
    """One HTML report over several runs.

    \b
    fscil report runs/compare/*/ --out compare.html
    """
    results = [read_result(folder) for folder in folders]
    out.print(session_table(results), crop=False)
    out.print(f"report  {write_report(results, out_file)}", soft_wrap=True)


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


def interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted


def main() -> None:
    """Errors of the user's making are one line and exit code 2; everything else is a bug and may say so loudly."""
    signal.signal(signal.SIGINT, interrupt)
    try:
        distributed.initialise()
        with distributed.print_on_rank_zero_only():
            app(standalone_mode=True)
    except UserError as error:
        fail(f"error: {error}", 2, refusal=str(error))
    except LostContact as error:
        fail(f"error: {error}", 1)
    except Interrupted as error:
        fail(str(error), 130)
    except SystemExit as leaving:
        if not leaving.code:
            distributed.shut_down()
        raise
    except Exception:
        if distributed.is_single_process():
            raise
        traceback.print_exc()
        distributed.exit_process(1)  # the others notice


def fail(line: str, code: int, refusal: str | None = None) -> NoReturn:
    """One line, however many processes there are."""
    if distributed.is_reporter(refusal):
        err.print(line, style="bold red" if line.startswith("error:") else "", soft_wrap=True)
    distributed.exit_process(code)
