"""Result: everything that is known about one run, as result.json holds it."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn, TypedDict

from fscil.engine.engine import StageTime
from fscil.errors import UserError
from fscil.files import write_atomically
from fscil.metrics import PerClass
from fscil.tables import markdown_table, session_table

__all__ = [
    "Parameters",
    "Result",
    "StageTime",
    "Trial",
    "markdown_table",
    "paired_difference",
    "read_result",
    "session_table",
    "write_result",
]


class Parameters(TypedDict):
    inference: int
    training_only: int


class Trial(TypedDict):
    """One draw of the few shots, on the same trained model."""

    trial: int
    accuracy: list[float]
    harmonic_mean: float | None


@dataclass(frozen=True)
class Result:
    """One method on one benchmark with one seed. Accuracies are in percent; None means that nothing was measured."""

    method: str
    preset: str
    benchmark: str
    augmentation: str
    seed: int
    trial: int  # which draw of the shots
    accuracy: list[float]  # per session, per sample over all seen classes
    last: float
    pd: float
    average: float
    base: float | None  # these three at the last session, per sample
    new: float | None
    harmonic_mean: float | None
    per_class: PerClass
    forgetting: list[float]  # per session
    confusion: list[list[int]]  # last session; rows are the true class
    seconds: dict[str, StageTime]
    captured: bool  # whether the optimiser step ran as a CUDA graph
    parameters: Parameters
    exemplars: int  # images of earlier sessions that the method kept
    weights: str  # "none", or the name of the pre-trained weights
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
    values = {field.name: getattr(result, field.name) for field in fields(result)}
    lines = [f"  {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in values.items()]
    write_atomically(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def read_result(path: Path) -> Result:
    """Read a result.json, or the one inside a run folder."""
    path = Path(path)
    if path.is_dir():
        path = path / "result.json"
    try:
        values = json.loads(path.read_bytes(), parse_constant=no_such_number)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; name a run folder or its result.json") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({error}); run it again to get a whole file") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} does not hold a result; name a run folder or its result.json")
    names = [field.name for field in fields(Result)]
    missing = [name for name in names if name not in values]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}; run it again with this version of fscil")
    result = Result(**{name: values[name] for name in names})
    wrong = malformed(result)
    if wrong:
        raise UserError(f"{path} has a malformed value for {', '.join(wrong)}; run it again to get a sound file")
    return result


def no_such_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def malformed(result: Result) -> list[str]:
    """Names of the fields whose values are not what the rest of the code may rely on."""
    sessions, classes = size(result.classes_per_session), size(result.class_names)
    checks: dict[Callable[[Any], bool], str] = {
        is_text: "method preset benchmark augmentation weights note config_hash command device split_checksum",
        is_whole: "seed trial exemplars",
        is_number: "last pd average",
        is_measure: "base new harmonic_mean",
        lambda v: isinstance(v, bool): "captured",
        lambda v: every(v, is_text): "warnings class_names",
        lambda v: every(v, is_number) and len(v) == sessions > 0: "accuracy forgetting",
        lambda v: every(v, is_whole) and sum(v) == classes: "classes_per_session",
        lambda v: every(v, lambda row: every(row, is_whole) and len(row) == classes) and len(v) == classes: "confusion",
        lambda v: isinstance(v, dict) and every([*v.values()], is_text): "versions",
        lambda v: has(v, is_measure, "base", "new", "harmonic_mean", "last"): "per_class",
        lambda v: has(v, is_whole, "inference", "training_only"): "parameters",
        lambda v: isinstance(v, dict) and every([*v.values()], is_stage): "seconds",
        lambda v: every(v, is_trial) and all(len(t["accuracy"]) == sessions for t in v): "trials",
    }
    return [name for sound, names in checks.items() for name in names.split() if not sound(getattr(result, name))]


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_measure(value: object) -> bool:
    return value is None or is_number(value)


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_stage(value: object) -> bool:
    return has(value, is_number, "seconds") and has(value, lambda v: isinstance(v, bool), "cached")


def is_trial(value: object) -> bool:
    return has(value, lambda v: every(v, is_number), "accuracy") and has(value, is_measure, "harmonic_mean")


def has(value: object, sound: Callable[[Any], bool], *keys: str) -> bool:
    return isinstance(value, dict) and all(key in value and sound(value[key]) for key in keys)


def every(values: object, sound: Callable[[Any], bool]) -> bool:
    return isinstance(values, list) and all(sound(value) for value in values)


def size(values: object) -> int:
    return len(values) if isinstance(values, list) else -1


def paired_difference(
    a: Sequence[Result], b: Sequence[Result], key: str | Callable[[Result], float | None]
) -> tuple[float, float, int]:
    """Mean of a's value minus b's over the seeds (and trials) that both have, its standard error, and their number.

    key is a field such as "last" or "harmonic_mean", or a function of a result. From one pair the error is nan.
    """
    get = key if callable(key) else (lambda result: getattr(result, key))
    of_b = {(result.seed, result.trial): get(result) for result in b}
    pairs = [(get(result), of_b[result.seed, result.trial]) for result in a if (result.seed, result.trial) in of_b]
    differences = [x - y for x, y in pairs if x is not None and y is not None]
    if not differences:
        raise UserError("the two lists of results have no seed in common; run both methods with the same seeds")
    n = len(differences)
    error = statistics.stdev(differences) / math.sqrt(n) if n > 1 else math.nan
    return statistics.fmean(differences), error, n
