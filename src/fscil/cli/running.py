"""fscil run, compare, reproduce and report."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fscil.cli.common import (
    Device,
    Json,
    Root,
    checked_path,
    err,
    going_on_by,
    out,
    shown_again_by,
)
from fscil.errors import UserError
from fscil.naming import printable

if TYPE_CHECKING:
    from fscil.results import Result


def at_least_0(seconds: float) -> float:
    if not seconds >= 0:
        raise typer.BadParameter("it is a number of seconds, at least 0")
    return seconds


Benchmark = Annotated[str, typer.Argument(help="A dataset; see `fscil data list`.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings, e.g. epochs=10.")]

MOST_SEEDS = 1000
LARGEST_SEED = 2**63 - 1  # what a configuration file can hold
Seeds = Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="How many seeds.")]
FirstSeed = Annotated[int, typer.Option(min=0, max=LARGEST_SEED - MOST_SEEDS, help="The first seed.")]
OutFolder = Annotated[
    Path, typer.Option("--out", callback=checked_path, help="Folder of the runs; finished ones are not repeated.")
]
Jobs = Annotated[int, typer.Option(min=1, max=256, help="How many runs at once, each in a process of its own.")]
# a smallest value would let nan pass
Every = Annotated[float, typer.Option("--checkpoint-every", callback=at_least_0, help="Seconds between checkpoints.")]


def run(
    method: Annotated[str | None, typer.Argument(help="A method or preset; see `fscil methods`.")] = None,
    benchmark: Annotated[str | None, typer.Argument(help="A dataset; see `fscil data list`.")] = None,
    overrides: Overrides = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of everything random.")] = 1,
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", callback=checked_path, help="Run folder.  [default: a new one under runs/]"),
    ] = None,
    resume: Annotated[Path | None, typer.Option(callback=checked_path, help="Continue the run in this folder.")] = None,
    device: Device = None,
    root: Root = None,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print every setting and what it is for; run nothing.")
    ] = False,
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
    if resume is not None and (method or benchmark or overrides or out_folder or show_config or seed != 1):
        raise UserError(
            "--resume takes everything from the run folder; leave out method, benchmark, settings, --seed and --out"
        )
    if resume is None and not (method and benchmark):
        raise UserError("name a method and a benchmark, for instance: fscil run limit glyphs")

    from fscil import distributed, runs
    from fscil.config import resolve, to_toml
    from fscil.distributed.orphans import leave_with_command

    leave_with_command()
    if resume is not None:
        environment = runs.RunEnvironment(runs.choose_device(device), resume, root, checkpoint_every)
        with going_on_by(resume_command(resume)):
            result = runs.resume(environment, err)
        show(result, resume, as_json)
        return
    config = resolve(method or "", benchmark or "", overrides or [], seed)
    if show_config:
        print(to_toml(config, explain=True), end="")
        return
    folder = out_folder or distributed.broadcast(lambda: runs.new_folder(config))
    environment = runs.RunEnvironment(runs.choose_device(device), folder, root, checkpoint_every)
    with going_on_by(resume_command(folder)):
        result = runs.start(config, environment, err)
    show(result, folder, as_json)


def resume_command(folder: Path) -> str:
    return shlex.join(["fscil", "run", "--resume", str(folder)])


def show(result: Result, folder: Path, as_json: bool) -> None:
    from fscil.tables import session_table

    with shown_again_by(resume_command(folder)):
        if as_json:
            print(json.dumps(vars(result)))
            return
        out.print(session_table([result]), crop=False)
        if result.note:
            out.print(f"note: {result.note}")
        for what, name in (("model", "model"), ("curve", "curve.png"), ("report", "report.html")):
            out.print(f"{what:6}  {printable(str(folder / name))}", soft_wrap=True)


def compare(
    benchmark: Benchmark,
    overrides: Overrides = None,
    methods: Annotated[str, typer.Option(help="Methods or presets, separated by commas; see above.")] = (
        "limit-plus,decoupled-cosine-plus,limit,decoupled-cosine"
    ),
    seeds: Seeds = 5,
    first_seed: FirstSeed = 1,
    jobs: Jobs = 1,
    out_folder: OutFolder = Path("runs/compare"),
    device: Device = None,
    root: Root = None,
    checkpoint_every: Every = 20.0,
    as_json: Json = False,
) -> None:
    """Compare methods over seeds. Prints a table and draws curves beside the paper's numbers.

    A method may have settings of its own, as in limit:augmentation=basic. all is every method, and limit and cec once
    more with the other augmentation where the paper has both; -NAME leaves one out. In all, methods pre-train with the
    recipe of limit, so that they share encoders, unless you set recipe=; fact and joint have a training of their own.
    Where encoders differ, a line above the table says how.

    \b
    fscil compare glyphs --methods limit,decoupled-cosine --seeds 5
    fscil compare cifar100 --methods limit,limit-paper --seeds 3 --first-seed 6 --out runs/cifar
    fscil compare cifar100 --methods all,-joint --seeds 1 --jobs 4 --out runs/all
    """  # fmt: skip
    from fscil import runs
    from fscil.comparison import compare as compare_methods
    from fscil.tables import session_table

    environment = runs.RunEnvironment(runs.choose_device(device), out_folder, root, checkpoint_every, jobs)
    with going_on_by("the same command"):
        chosen = range(first_seed, first_seed + seeds)
        comparison = compare_methods(benchmark, methods.split(","), chosen, overrides or [], environment, err)
    with shown_again_by("the same command"):
        if as_json:
            print(json.dumps([vars(result) for result in comparison.results]))
            return
        for line in comparison.above:
            out.print(printable(line), soft_wrap=True)
        out.print(session_table(comparison.results), crop=False)
        for line in comparison.lines:
            out.print(printable(line), soft_wrap=True)


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which table; leave it out to list them.")] = None,
    overrides: Overrides = None,
    seeds: Seeds = 3,
    first_seed: FirstSeed = 1,
    jobs: Jobs = 1,
    out_folder: OutFolder = Path("runs/reproduce"),
    device: Device = None,
    root: Root = None,
) -> None:
    """Reproduce the paper's tables. Without a name, list those available.

    \b
    fscil reproduce
    fscil reproduce ablation --seeds 3 --first-seed 6
    """
    from fscil import runs
    from fscil.reproduce import names
    from fscil.reproduce import reproduce as reproduce_one

    if name is None:
        for known, title in names().items():
            out.print(f"{known:13} {title}", soft_wrap=True)
        return
    environment = runs.RunEnvironment(runs.choose_device(device), out_folder, root, at_once=jobs)
    with going_on_by("the same command"):
        reproduce_one(name, range(first_seed, first_seed + seeds), overrides or [], environment, out, err)
