"""fscil data: list, prepare and verify datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fscil import datasets

data_app = typer.Typer(no_args_is_help=True)
Root = Annotated[Path | None, typer.Option(help="Folder of datasets; default: the environment variable FSCIL_DATA.")]
Name = Annotated[str, typer.Argument(help="The dataset's name.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@data_app.command("list")
def list_(as_json: Json = False) -> None:
    """Which datasets there are.

    \b
    fscil data list
    """
    known = {name: datasets.get(name).description for name in datasets.names()}
    if as_json:
        print(json.dumps(known))
        return
    for name, description in known.items():
        print(f"{name:12} {description}")


@data_app.command()
def prepare(name: Name, root: Root = None) -> None:
    """Fetch or build what a dataset needs.

    \b
    fscil data prepare cifar100 --root data
    """
    print(datasets.get(name).prepare(datasets.data_root(root)))


@data_app.command()
def verify(name: Name, root: Root = None) -> None:
    """Check a dataset's files and its split.

    \b
    fscil data verify cifar100 --root data
    """
    for line in datasets.get(name).verify(datasets.data_root(root)):
        print(line)
