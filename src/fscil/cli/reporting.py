"""fscil report: a page over several runs, or of a model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from fscil.cli.common import Device, Json, SkipUnreadable, checked_path, checked_paths, err, out, say
from fscil.errors import UserError
from fscil.files import check_replaceable
from fscil.naming import printable


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", callback=checked_paths, help="Run folders or result.json files; or one model."),
    ],
    out_file: Annotated[Path, typer.Option("--out", callback=checked_path, help="The HTML file.")] = Path(
        "report.html"
    ),
    test: Annotated[
        Path | None,
        typer.Option(callback=checked_path, help="Of a model: a folder of photos for each class, to test it on."),
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Write an HTML report over several runs, or of a model.

    \b
    fscil report runs/compare/*/ --out compare.html
    fscil report flowers
    fscil report flowers --test test/ --out flowers.html    with pictures of its mistakes
    """
    if os.path.isdir(out_file):
        raise UserError(
            f"--out {out_file} is a folder; name the HTML file to write, such as {out_file / 'report.html'}"
        )
    check_replaceable(out_file)
    if is_model(folders[0]):
        if len(folders) > 1:
            raise UserError("a report is of one model, or of several runs; name one model")
        sentence = report_model(folders[0], out_file, test, device, skip_unreadable)
        if as_json:
            print(json.dumps({"report": str(out_file), "sentence": sentence}))
        else:
            say(sentence, f"report  {out_file}")
        return
    if test is not None:
        raise UserError("--test is for the report of a model; name a model folder")
    from fscil.report.html import write_report
    from fscil.results import read_result
    from fscil.tables import session_table

    results = [read_result(folder) for folder in folders]
    path = write_report(results, out_file)
    if as_json:
        print(json.dumps({"report": str(path), "runs": len(results)}))
        return
    out.print(session_table(results), crop=False)
    out.print(f"report  {printable(str(path))}", soft_wrap=True)


def is_model(folder: Path) -> bool:
    """A run's folder has a result, too; that one is reported."""
    return os.path.isfile(folder / "config.json") and not os.path.lexists(folder / "result.json")


def report_model(folder: Path, out_file: Path, test: Path | None, device: str | None, skip_unreadable: bool) -> str:
    """Returns the sentence that the page opens with."""
    from fscil.learner.listing import class_folders

    photos = None if test is None else class_folders(test)
    from fscil.device import choose_device
    from fscil.learner import write_page
    from fscil.progress import stage_progress

    with stage_progress(err, "report", sum(map(len, (photos or {}).values()))) as progress:
        return write_page(
            folder, out_file, photos, title=f"Photos of {test}", device=choose_device(device).type,
            skip_unreadable=skip_unreadable, progress=progress.update,
        )  # fmt: skip
