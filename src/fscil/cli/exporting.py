"""fscil export: a model for programs without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fscil.cli.common import Json, Model, checked_path, count, err, say
from fscil.naming import choose

FORMATS = ("onnx",)


def export(
    model: Model,
    to: Annotated[str, typer.Option(help="The format: onnx.")] = "onnx",
    out_file: Annotated[
        Path | None,
        typer.Option("--out", callback=checked_path, help="The file, which must not exist.  [default: MODEL.onnx]"),
    ] = None,
    encoder_only: Annotated[
        bool, typer.Option("--encoder-only", help="Photos to embeddings alone, without classes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a model for programs without torch.

    \b
    fscil export flowers --to onnx
    fscil export flowers --to onnx --out encoder.onnx --encoder-only
    """
    choose(to, FORMATS, "format")
    from fscil.export import export_onnx  # type: ignore[import-not-found, unused-ignore]

    path = out_file or Path(f"{model.absolute().name}.onnx")
    with err.status("exporting"):
        found = export_onnx(model, path, encoder_only=encoder_only)
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    what = "the encoder alone" if encoder_only else count(found.classes, "class", "classes")
    say(f"wrote {found.path} ({found.bytes / 2**20:.1f} MiB, {what})")
