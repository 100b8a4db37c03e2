"""Recipes: named sets of values for pre-training, such as length, batch size and rates, from recipes.toml."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from fscil.naming import choose

NONE = "none"  # no recipe: the method's own values
KEYS = (
    "epochs", "steps", "batch", "lr", "head_lr", "warmup", "milestones", "weight_decay", "label_smoothing",
    "crop_scale", "turned",
)  # fmt: skip


def names() -> list[str]:
    return [NONE, *_all()]


def values(name: str) -> dict[str, Any]:
    choose(name, names(), "recipe")
    recipe = _all().get(name, {})
    return {choose(key, KEYS, "key", where="recipes.toml"): recipe[key] for key in recipe if key != "why"}


def why(name: str) -> str:
    return str(_all().get(name, {}).get("why", ""))


def _all() -> dict[str, dict[str, Any]]:
    return tomllib.loads((resources.files("fscil") / "recipes.toml").read_text(encoding="utf-8"))
