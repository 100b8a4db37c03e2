"""fscil check and fit: learn from a folder of many photos."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from fscil.cli.common import Device, Json, checked_path, err, going_on_by, say

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", callback=checked_path, help="A folder of photos for each class, perhaps in train/ and test/."
    ),
]
Encoder = Annotated[
    str, typer.Option(help="auto (ImageNet's), embedded (for tiny images), timm:NAME, or a path.")
]  # fmt: skip
Finetune = Annotated[
    bool | None,
    typer.Option("--finetune/--no-finetune", help="Train the encoder, too.  [default: where it pays]"),
]


def check(
    folder: Folder,
    encoder: Encoder = "auto",
    finetune: Finetune = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Look at a folder of photos before learning it.

    All its problems at once, what fit would do, and how long that would take. The exit code is 1 if fit would refuse.

    \b
    fscil check photos/
    fscil fit photos/ --out flowers
    """
    from fscil.device import choose_device
    from fscil.learner import check as check_folder

    where = choose_device(device).type
    found = check_folder(folder, encoder=encoder, device=where, finetune=finetune, console=err)
    if as_json:
        print(json.dumps(found.as_dict()))
    else:
        say(*found.sentences)
    if not found.ok:
        raise typer.Exit(1)


def fit(
    folder: Folder,
    out_folder: Annotated[
        Path, typer.Option("--out", callback=checked_path, help="The model folder, which must not exist.")
    ],
    encoder: Encoder = "auto",
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Go on without photos that cannot be used, and name them.")
    ] = False,
    finetune: Finetune = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of everything random.")] = 1,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Learn a folder of many photos; more classes can be taught later.

    \b
    fscil check photos/
    fscil fit photos/ --out flowers
    fscil predict flowers new.jpg
    fscil teach flowers tulip/*.jpg
    """
    from fscil.device import choose_device
    from fscil.learner import fit as fit_folder

    where = choose_device(device).type
    with going_on_by("the same command"):
        found = fit_folder(
            folder, out_folder, encoder=encoder, device=where, skip_bad=skip_bad, finetune=finetune, seed=seed,
            console=err,
        )  # fmt: skip
    if as_json:
        print(json.dumps({"model": str(out_folder), **found.as_dict()}))
        return
    name = shlex.quote(str(out_folder))
    say(*found.sentences, f"model   {out_folder}", f"try it  fscil predict {name} PHOTO, or teach it more: fscil teach "
        f"{name} FOLDER")  # fmt: skip
