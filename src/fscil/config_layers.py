"""The sources of a configuration: settings of the method, the dataset and the run, presets, defaults.

A name that nothing reads, or that two of them would read, is refused.
"""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from fscil import datasets, methods
from fscil.errors import UserError
from fscil.naming import choose
from fscil.settings import fields_of, setting

Known = dict[str, tuple[dataclasses.Field[Any], Any]]  # name -> field and type
PRESET_KEYS = ("method", "description", "settings", "on", "notes", "note")


@dataclass(frozen=True)
class RunSettings:
    """Settings that belong to neither the method nor the dataset."""

    validation: str = setting(
        "none",
        "classes: run on an inner benchmark of base classes, to choose settings without any test image",
        choices=("none", "classes"),
    )
    base_margin: float = setting(
        0.0,
        "subtracted from base classes' logits in favour of new classes, with any method",
        origin="the paper's",
        least=-1e6,
        most=1e6,
    )
    trials: int = setting(
        0,
        "repeat the few-shot sessions with shots drawn by seeds 1..E (the paper's other protocol has 30)",
        least=0,
        most=10_000,
    )
    precision: str = setting(
        "auto", "of gradient steps; auto: bfloat16 on a GPU, float32 on a CPU", choices=("auto", "float32")
    )
    segment_mib: int = setting(
        512, "MiB of augmented images on the device at once; longer epochs are prepared in parts", least=1, most=2**20
    )


def known_settings(method: str, benchmark: str) -> Known:
    """Everything that key=value may set. It does not say whose setting it is, so no two owners may share a name."""
    owners = {
        f"method {method!r}": fields_of(methods.get(method).Settings),
        f"dataset {benchmark!r}": fields_of(datasets.get(benchmark).options),
        "every run": fields_of(RunSettings),
    }
    known: Known = {}
    owner_of: dict[str, str] = {}
    for owner, fields in owners.items():
        for key in fields:
            if key in known:
                raise UserError(f"{key!r} is a setting of {owner_of[key]} and of {owner}; rename it in one of them")
            known[key], owner_of[key] = fields[key], owner
    return known


def presets() -> list[str]:
    """All names that `fscil run` takes: methods and presets of methods."""
    files = (file.name for file in resources.files("fscil.presets").iterdir())
    return sorted({*methods.names(), *(name.removesuffix(".toml") for name in files if name.endswith(".toml"))})


def read_preset(name: str) -> tuple[str, dict[str, Any]]:
    """A preset's method and its file, which is empty for a plain method."""
    choose(name, presets(), "method")
    preset = tomllib.loads(preset_text(name))
    check_preset(name, preset)
    return preset.get("method", name), preset


def preset_text(name: str) -> str:
    file = resources.files("fscil.presets") / f"{name}.toml"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def check_preset(name: str, preset: dict[str, Any]) -> None:
    """Refuse keys that nothing reads and datasets that do not exist."""
    file = f"presets/{name}.toml"
    for key in preset:
        choose(key, PRESET_KEYS, "key", where=file)
    known_datasets = datasets.names()
    for table in ("on", "notes"):
        for dataset in preset.get(table, {}):
            choose(dataset, known_datasets, "dataset", where=f"{file}, [{table}]")
    of_method = fields_of(methods.get(preset.get("method", name)).Settings)
    for dataset, note in preset.get("notes", {}).items():
        if isinstance(note, dict):
            for key in note:
                choose(key, ("note", "settings"), "key", where=f"{file}, [notes.{dataset}]")
            if len(note) < 2:
                raise UserError(f"{file}, [notes.{dataset}]: it needs both note and settings")
            for key in note["settings"]:
                choose(key, of_method, "setting", where=f"{file}, [notes.{dataset}]")
    known = {*of_method, *fields_of(RunSettings)}
    for key in preset.get("settings", {}):  # they apply to every dataset, so they cannot be options of one
        choose(key, known, "setting", where=f"{file}, [settings]")
    for dataset, settings in preset.get("on", {}).items():
        here = known.union(fields_of(datasets.get(dataset).options))
        for key in settings:
            choose(key, here, "setting", where=f"{file}, [on.{dataset}]")


def dataset_defaults(dataset: datasets.Dataset, options: Any, method: str) -> dict[str, object]:
    """The dataset's defaults. This method need not know each of them, but some method must."""
    defaults = dataset.defaults_for(options)
    known = {key for name in (method, *methods.METHODS) for key in fields_of(methods.get(name).Settings)}
    if not defaults.keys() <= known:  # only then are the methods of other packages imported
        known.update(key for name in methods.names() for key in fields_of(methods.get(name).Settings))
    for key in defaults:
        choose(key, known, "setting", where=f"defaults of dataset {dataset.name!r}")
    return defaults
