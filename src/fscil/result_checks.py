"""Checks the values of a result.json, so that code that reads a Result can rely on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]
MOST = 1e12  # of seconds and margins
ROUNDING = 1e-6  # in shares


def malformed(values: Mapping[str, Any]) -> list[str]:
    """Names of the fields with values that the rest of the code could not handle."""
    sessions, classes = size(values["classes_per_session"]), size(values["class_names"])
    checks: dict[Check, str] = {
        is_text: "method preset benchmark title augmentation memory weights note config_hash command device "
        "split_checksum",
        is_count: "seed trial exemplars",
        is_share: "last average",
        is_difference: "pd",
        is_measure: "base new harmonic_mean area base_among_base new_among_new best_harmonic_mean best_last "
        "base_to_new new_to_base",
        lambda v: v is None or is_number(v): "margin",
        is_flag: "captured",
        lambda v: every(v, is_text): "changed warnings class_names",
        lambda v: every(v, is_share) and len(v) == sessions > 0: "accuracy",
        lambda v: every(v, is_difference) and len(v) == sessions: "forgetting",
        lambda v: every(v, lambda way: is_count(way) and way > 0) and sum(v) == classes: "classes_per_session",
        lambda v: every(v, lambda row: every(row, is_count) and len(row) == classes) and len(v) == classes: "confusion",
        lambda v: isinstance(v, dict) and every([*v.values()], is_text): "versions",
        lambda v: has(v, is_measure, "base", "new", "harmonic_mean", "last"): "per_class",
        lambda v: v is None or (is_headline(v) and len(v["accuracy"]) == sessions): "margin_zero",
        lambda v: every(v, is_point) and (v == [] or is_measured(values)): "curve",
        lambda v: has(v, is_count, "inference", "training_only"): "parameters",
        lambda v: isinstance(v, dict) and every([*v.values()], is_stage): "seconds",
        lambda v: every(v, is_trial) and all(len(t["accuracy"]) == sessions for t in v): "trials",
    }
    return [name for sound, names in checks.items() for name in names.split() if not sound(values[name])]


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_flag(value: object) -> bool:
    return isinstance(value, bool)


def is_number(value: object, least: float = -MOST, most: float = MOST) -> bool:
    """Finite, and small enough to compute with and to draw."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def is_share(value: object) -> bool:
    """In percent."""
    return is_number(value, -ROUNDING, 100 + ROUNDING)


def is_difference(value: object) -> bool:
    """Of two shares."""
    return is_number(value, -100 - ROUNDING, 100 + ROUNDING)


def is_measure(value: object) -> bool:
    return value is None or is_share(value)


def is_count(value: object) -> bool:
    """Sums of counts fit into 64 bits; seeds and draws of the shots are below this, too."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def is_stage(value: object) -> bool:
    return has(value, lambda seconds: is_number(seconds, 0), "seconds") and has(value, is_flag, "cached")


def is_trial(value: object) -> bool:
    return has(value, is_accuracy, "accuracy") and has(value, is_measure, "harmonic_mean", "area")


def is_headline(value: object) -> bool:
    numbers = has(value, is_share, "last", "average") and has(value, is_difference, "pd")
    return numbers and has(value, is_accuracy, "accuracy") and has(value, is_measure, "base", "new", "harmonic_mean")


def is_accuracy(value: object) -> bool:
    return every(value, is_share)


def is_point(value: object) -> bool:
    """Of the curve over all margins: margin, base accuracy, new accuracy."""
    return every(value, is_number) and len(value) == 3 and all(map(is_share, value[1:]))  # type: ignore[arg-type, index]


def is_measured(values: Mapping[str, Any]) -> bool:
    """Whether the ends of a curve are known, between which it is drawn."""
    return values["base_among_base"] is not None and values["new_among_new"] is not None


def has(value: object, sound: Check, *keys: str) -> bool:
    return isinstance(value, dict) and all(key in value and sound(value[key]) for key in keys)


def every(values: object, sound: Check) -> bool:
    return isinstance(values, list) and all(sound(value) for value in values)


def size(values: object) -> int:
    return len(values) if isinstance(values, list) else -1
