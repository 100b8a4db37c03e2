"""Exporting a learner as a file for ONNX Runtime.

    images      uint8 [batch, height, width, 3]: photos of any size, as Pillow decodes them
    rows        float32 [classes, d]: by default those of the classes that were known when the file was written
    margins     float32 [classes], to be given with rows: subtracted from the logits
    -> logits      float32 [batch, classes]
    -> embeddings  float32 [batch, d]: a class's row is the mean of those of its photos
    -> known_rows, known_margins: the rows and margins that were used

The encoder alone has images and embeddings. What else a program needs, names first of all, is JSON in the metadata.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from fscil.errors import UserError
from fscil.export.check import largest_difference
from fscil.export.graphs import ClassifierGraph, EncoderGraph
from fscil.export.known import Known, what_is_known
from fscil.export.program import program_of
from fscil.files import expand_user, write_atomically
from fscil.learner import Learner

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
MOST_BYTES = 2**31 - 1  # that ONNX's format can hold in one file
TOLERANCE = 1e-3  # of the largest logit


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: str
    classes: int
    bytes: int
    difference: float  # from the model's own answers to drawn pictures, as a share of the largest logit

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def export_onnx(
    source: Learner | str | PathLike[str], path: str | PathLike[str], *, encoder_only: bool = False
) -> Exported:
    """Write a learner or a model folder into a new file, if ONNX Runtime then gives the model's own answers.

    encoder_only: photos to embeddings alone; the file of a whole model gives them, too.
    """
    target = check_path(path)
    check_packages()
    known = what_is_known(source)
    data = exported(known, encoder_only)
    difference = largest_difference(data, known.model, encoder_only)
    if not difference <= TOLERANCE:  # it may be no number at all
        raise UserError(
            f"the model's {parts(known)} gives other answers once exported (by {difference:.1%} of the largest), so "
            "nothing was written; choose another"
        )
    check_path(path)  # while that took its time, somebody else may have written it
    write_atomically(target, data)
    return Exported(str(target), 0 if encoder_only else len(known.rows), len(data), difference)


def exported(known: Known, encoder_only: bool) -> bytes:
    model = known.model
    name = model.calibrator_name
    if model.calibrator.cells:
        raise UserError(
            f"the calibrator {name!r} solves transport problems, for which ONNX has no operation; export a model of "
            "another method"
        )
    if not encoder_only and (name == "bi-lstm" or getattr(model.calibrator, "slots", None)):
        raise UserError(
            f"the calibrator {name!r} of this model can be exported for a fixed number of classes only; export its "
            "encoder alone, or a model of another method"
        )
    graph = EncoderGraph(model) if encoder_only else ClassifierGraph(model)
    try:
        data = program_of(graph.eval(), known)
    except Exception as error:  # those of other packages may do anything
        reason = " ".join(str(error).split())[:150] or type(error).__name__
        raise UserError(f"the model's {parts(known)} cannot be exported to ONNX ({reason}); choose another") from error
    if len(data) > MOST_BYTES:
        raise UserError(f"the model takes {len(data) >> 20} MiB, more than an ONNX file holds; use a smaller encoder")
    return data


def parts(known: Known) -> str:
    return f"encoder {known.facts['encoder']} or calibrator {known.facts['calibrator']}"


def check_path(path: str | PathLike[str]) -> Path:
    """Refuse what could not be written, before the time that an export takes."""
    try:
        target = expand_user(os.fspath(path))
        os.lstat(target)
        exists = True
    except (FileNotFoundError, NotADirectoryError):
        exists = False
    except (TypeError, ValueError, OSError) as error:
        raise UserError(
            f"{path!r} cannot be the name of a file ({error}); choose another that ends in .onnx"
        ) from error
    if target.suffix != ".onnx":
        raise UserError(f"{target} is not the name of an ONNX file; choose one that ends in .onnx")
    if exists:
        raise UserError(f"{target} exists already; choose another name")
    folder = target.parent
    while not os.path.lexists(folder):
        folder = folder.parent
    if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
        raise UserError(f"{target} cannot be written: {folder} is not a folder that you may write to; choose another")
    return target


def check_packages() -> None:
    for name in PACKAGES:
        try:
            import_module(name)
        except ImportError as error:
            reason = " ".join(str(error).split())[:100]
            raise UserError(f'exporting to ONNX needs {name} ({reason}); pip install "fscil[onnx]"') from error
