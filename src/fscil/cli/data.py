"""fscil data: list, prepare and verify datasets."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fscil.cli.common import Json, Root, print_descriptions
from fscil.naming import printable

data_app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The dataset's name.")]


@data_app.command("list")
def list_(as_json: Json = False) -> None:
    """List the datasets.

    \b
    fscil data list
    fscil data list --json
    """
    from fscil import datasets

    known = {name: datasets.get(name).description for name in datasets.names()}
    if as_json:
        print(json.dumps(known))
    else:
        print_descriptions(known)


@data_app.command()
def prepare(name: Name, root: Root = None) -> None:
    """Fetch or build what a dataset needs.

    \b
    fscil data prepare cifar100 --root data
    fscil data prepare cub200 --root data
    """
    from fscil import datasets

    print(printable(datasets.get(name).prepare(datasets.data_root(root))))


@data_app.command()
def verify(name: Name, root: Root = None) -> None:
    """Check a dataset's files and its split.

    \b
    fscil data verify cifar100 --root data
    """
    from fscil import datasets

    for line in datasets.get(name).verify(datasets.data_root(root)):
        print(printable(line))
