"""Checks the values of a result.json, so that code that reads a Result can rely on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]


def malformed(values: Mapping[str, Any]) -> list[str]:
    """Names of the fields with values that the rest of the code could not handle."""
    sessions, classes = size(values["classes_per_session"]), size(values["class_names"])
    checks: dict[Check, str] = {
        is_text: "method preset benchmark title augmentation memory weights note config_hash command device "
        "split_checksum",
        is_whole: "seed trial exemplars",
        is_number: "last pd average",
        is_measure: "base new harmonic_mean margin area base_among_base new_among_new best_harmonic_mean best_last "
        "base_to_new new_to_base",
        is_flag: "captured",
        lambda v: every(v, is_text): "changed warnings class_names",
        lambda v: every(v, is_number) and len(v) == sessions > 0: "accuracy forgetting",
        lambda v: every(v, is_count) and sum(v) == classes: "classes_per_session",
        lambda v: every(v, lambda row: every(row, is_count) and len(row) == classes) and len(v) == classes: "confusion",
        lambda v: isinstance(v, dict) and every([*v.values()], is_text): "versions",
        lambda v: has(v, is_measure, "base", "new", "harmonic_mean", "last"): "per_class",
        lambda v: v is None or (is_headline(v) and len(v["accuracy"]) == sessions): "margin_zero",
        lambda v: every(v, lambda point: every(point, is_number) and len(point) == 3): "curve",
        lambda v: has(v, is_whole, "inference", "training_only"): "parameters",
        lambda v: isinstance(v, dict) and every([*v.values()], is_stage): "seconds",
        lambda v: every(v, is_trial) and all(len(t["accuracy"]) == sessions for t in v): "trials",
    }
    return [name for sound, names in checks.items() for name in names.split() if not sound(values[name])]


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_flag(value: object) -> bool:
    return isinstance(value, bool)


def is_number(value: object) -> bool:
    """Finite, and small enough to compute with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def is_measure(value: object) -> bool:
    return value is None or is_number(value)


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_stage(value: object) -> bool:
    return has(value, is_number, "seconds") and has(value, is_flag, "cached")


def is_trial(value: object) -> bool:
    return has(value, is_accuracy, "accuracy") and has(value, is_measure, "harmonic_mean", "area")


def is_headline(value: object) -> bool:
    numbers = has(value, is_number, "last", "pd", "average")
    return numbers and has(value, is_accuracy, "accuracy") and has(value, is_measure, "base", "new", "harmonic_mean")


def is_accuracy(value: object) -> bool:
    return every(value, is_number)


def has(value: object, sound: Check, *keys: str) -> bool:
    return isinstance(value, dict) and all(key in value and sound(value[key]) for key in keys)


def every(values: object, sound: Check) -> bool:
    return isinstance(values, list) and all(sound(value) for value in values)


def size(values: object) -> int:
    return len(values) if isinstance(values, list) else -1
