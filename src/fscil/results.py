"""Result: everything that is known about one run, as result.json holds it."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import statistics
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn, TypedDict

from fscil.errors import UserError
from fscil.files import read_regular, write_atomically
from fscil.metrics import Headline, PerClass
from fscil.naming import quotable
from fscil.result_checks import malformed
from fscil.tables import markdown_table, session_table

__all__ = [
    "Measure",
    "Parameters",
    "Result",
    "StageTime",
    "Trial",
    "markdown_table",
    "measured_by",
    "paired_difference",
    "read_result",
    "session_table",
    "write_result",
]

# of result.json; version 1 had no `version`, `changed`, `memory` and `title`, version 2 nothing about margins
VERSION = 3
LARGEST_FILE = 2**28  # bytes
MANY_CLASSES, MOST_CLASSES = 200, 5000  # of the first number on, a confusion matrix is written without its zeros


class StageTime(TypedDict):
    seconds: float
    cached: bool  # the stage came from the cache, and these are its original seconds


class Parameters(TypedDict):
    inference: int
    training_only: int


class Trial(TypedDict):
    """One draw of the few shots, on the same trained model."""

    trial: int
    accuracy: list[float]
    harmonic_mean: float | None
    area: float | None


@dataclass(frozen=True, kw_only=True)
class Result:
    """One method on one benchmark with one seed. Accuracies are in percent; None means that nothing was measured."""

    folder: str = field(default="", compare=False)  # where it was read or written; not part of the file
    version: int = VERSION  # of this list of fields
    method: str
    preset: str
    benchmark: str
    title: str = ""  # the benchmark's name in reports; empty: its plain name
    augmentation: str
    changed: list[str] = field(default_factory=list)  # the "key=value" that give this run after `fscil run PRESET ...`
    seed: int
    trial: int  # which draw of the shots
    accuracy: list[float]  # per session, per sample over all seen classes
    last: float
    pd: float
    average: float
    base: float | None  # these three at the last session, per sample
    new: float | None
    harmonic_mean: float | None
    margin: float | None = None  # subtracted from base classes' logits in all numbers but those of margin_zero
    margin_zero: Headline | None = None  # the numbers above without a margin
    # What no margin changes, at the last session (see margins.py). Runs of versions 1 and 2 did not measure it.
    area: float | None = None  # under the curve of new over base accuracy as the margin takes every value
    base_among_base: float | None = None  # its ends: accuracy on base classes among these alone ...
    new_among_new: float | None = None  # ... and on new classes among these alone
    best_harmonic_mean: float | None = None  # on the curve, each at a margin of its own
    best_last: float | None = None
    curve: list[list[float]] = field(default_factory=list)  # up to 101 points: margin, base accuracy, new accuracy
    base_to_new: float | None = None  # test images of base classes that were given a new class, at the run's margin
    new_to_base: float | None = None
    per_class: PerClass
    forgetting: list[float]  # per session
    confusion: list[list[int]]  # last session; rows are the true class
    seconds: dict[str, StageTime]
    captured: bool  # whether the optimiser step ran as a CUDA graph
    parameters: Parameters
    memory: str = "none"  # how many images of earlier sessions the method may keep
    exemplars: int  # how many it held at the end
    weights: str  # "none", or the name and checksum of the pre-trained weights
    warnings: list[str]
    note: str  # what the preset simplifies; may be empty
    config_hash: str
    command: str
    versions: dict[str, str]
    device: str
    split_checksum: str
    class_names: list[str]
    classes_per_session: list[int]
    trials: list[Trial]  # further draws of the shots; may be empty


def write_result(result: Result, path: Path) -> None:
    """Write result.json, one field a line."""
    values = {field.name: getattr(result, field.name) for field in fields(result) if field.compare}
    if len(result.confusion) > MANY_CLASSES:
        values["confusion"] = [{str(k): count for k, count in enumerate(row) if count} for row in result.confusion]
    lines = [f"  {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in values.items()]
    write_atomically(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def read_result(path: Path) -> Result:
    """Read a result.json, or the one inside a run folder. A file of an earlier version is converted."""
    path = Path(path)
    if os.path.isdir(path):  # unlike Path.is_dir, it never raises
        path = path / "result.json"
    try:
        values = json.loads(read_regular(path, LARGEST_FILE), parse_constant=no_such_number)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; name a run folder or its result.json") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({quotable(error)}); run it again to get a complete file") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} does not hold a result; name a run folder or its result.json")
    version = values.pop("version", 1)
    if type(version) is not int or not 1 <= version <= VERSION:
        raise UserError(
            f"{path} has version {quotable(version)}, but this fscil reads up to version {VERSION}; update fscil"
        )
    if version == 1 and isinstance(values.get("command"), str):
        values["changed"] = settings_typed_in(values["command"])
    if version < 3 and isinstance(values.get("trials"), list):
        values["trials"] = [{"area": None, **trial} if isinstance(trial, dict) else trial for trial in values["trials"]]
    values = {**defaults(), **values}
    missing = [field.name for field in fields(Result) if field.name not in values]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}; run it again with this version of fscil")
    values["confusion"] = with_zeros(values["confusion"], values["class_names"])
    wrong = malformed(values)
    if wrong:
        raise UserError(f"{path} has a malformed value for {', '.join(wrong)}; run it again to get a valid file")
    return Result(**{**{field.name: values[field.name] for field in fields(Result)}, "folder": str(path.parent)})


def with_zeros(confusion: Any, class_names: Any) -> Any:
    """Rows {predicted class: count} as lists; what is malformed is left to be refused."""
    if not isinstance(confusion, list) or not isinstance(class_names, list):
        return confusion
    if not len(confusion) == len(class_names) <= MOST_CLASSES:  # a short file must not take all memory
        return confusion
    names = {str(k): 0 for k in range(len(class_names))}
    return [
        list((names | row).values()) if isinstance(row, dict) and row.keys() <= names.keys() else row
        for row in confusion
    ]


def no_such_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def defaults() -> dict[str, Any]:
    """The values of fields that a file may lack."""
    plain = {field.name: field.default for field in fields(Result) if field.default is not MISSING}
    made = {field.name: field.default_factory() for field in fields(Result) if field.default_factory is not MISSING}
    return {**plain, **made}


def settings_typed_in(command: str) -> list[str]:
    """The key=value words of a command line; version 1 has them only there."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quotation mark that is never closed
        words = command.split()
    return [word for word in words if re.fullmatch(r"[a-z_]+=.+", word)]


Measure = Callable[[Result], float | None]


def measured_by(key: str | Measure) -> Measure:
    """A field of a result, or a function of it, as a function."""
    return key if callable(key) else attrgetter(key)


def paired_difference(a: Sequence[Result], b: Sequence[Result], key: str | Measure) -> tuple[float, float, int]:
    """Mean of a's value minus b's over the seeds (and trials) that both have, its standard error, and their number.

    key is a field such as "last" or "harmonic_mean", or a function of a result. From one pair the error is nan.
    """
    get = measured_by(key)
    of_b = {(result.seed, result.trial): get(result) for result in b}
    pairs = [(get(result), of_b[result.seed, result.trial]) for result in a if (result.seed, result.trial) in of_b]
    differences = [x - y for x, y in pairs if x is not None and y is not None]
    if not differences:
        raise UserError("the two lists of results have no seed in common; run both methods with the same seeds")
    n = len(differences)
    error = statistics.stdev(differences) / math.sqrt(n) if n > 1 else math.nan
    return statistics.fmean(differences), error, n
