"""What a model folder says about itself, read without torch: its config.json, and the header of its tensors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fscil.arrays import about_of, read_header
from fscil.errors import UserError
from fscil.files import is_unicode, read_regular

FORMAT = 1  # of the folder; increase it with any change that older versions of fscil cannot read
MOST_BYTES = 64 * 2**20  # of config.json
TAUGHT = "classes.safetensors"  # what a learner was taught after the run
REMEDY = "copy the whole folder again"


def model_folder_of(folder: Path) -> Path:
    """The folder itself, or the folder `model` of a run."""
    if not os.path.exists(folder / "config.json") and os.path.exists(folder / "model" / "config.json"):
        return folder / "model"
    return folder


def read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(read_regular(path, MOST_BYTES))
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror}; name a model folder, such as the folder `model` of a run"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({error}); {REMEDY}") from error
    if not isinstance(facts, dict) or type(facts.get("format")) is not int or facts["format"] < 1:
        raise UserError(f"{path} is not a model's configuration; name a model folder, such as `model` of a run")
    if facts["format"] > FORMAT:
        raise UserError(
            f"{path.parent} was written by a newer fscil (format {facts['format']}); update fscil to read it"
        )
    names = facts.get("class_names")
    if not isinstance(names, list) or len({n for n in names if _is_name(n)}) != len(names):
        raise UserError(f"{path} does not name its classes; {REMEDY}")
    return facts


def _is_name(value: object) -> bool:
    return isinstance(value, str) and is_unicode(value)


def model_header(path: Path) -> dict[str, Any]:
    """The header of model.safetensors: types and shapes of its tensors."""
    try:
        return read_header(path)
    except (OSError, ValueError, MemoryError) as error:
        raise UserError(f"{path} cannot be read ({error}); {REMEDY}") from error


def model_checksum(path: Path) -> str:
    """What the header of model.safetensors says of its tensors; loading the model compares it with them."""
    try:
        return str(about_of(model_header(path))["checksum"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path} cannot be read ({error}); {REMEDY}") from error
