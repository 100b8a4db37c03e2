"""Model folder: config.json, model.safetensors and a card filled from the run. Never pickle."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from fscil.config import Config
from fscil.engine.checkpoint import save_tensors
from fscil.files import write_atomically
from fscil.methods import Method
from fscil.results import Result, markdown_table


def save_model(method: Method, config: Config, result: Result, folder: Path) -> None:
    """The method's state after its last session, with what is needed to use it."""
    told = {name: getattr(result, name) for name in ("class_names", "classes_per_session", "config_hash")}
    facts = {**dataclasses.asdict(config), **told}
    save_tensors(folder / "model.safetensors", method.state(), {"method": config.method})
    write_atomically(folder / "config.json", (json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode())
    write_atomically(folder / "README.md", card(config, result).encode())


def card(config: Config, result: Result) -> str:
    harmonic = "none" if result.harmonic_mean is None else f"{result.harmonic_mean:.2f}"
    return f"""---
library_name: fscil
tags: [few-shot-class-incremental-learning, image-classification]
---
# {config.preset} on {result.benchmark}

A classifier over {len(result.class_names)} classes: {result.classes_per_session[0]} learned from plenty of images,
{sum(result.classes_per_session[1:])} taught from a few each.

{markdown_table([result])}

Last session {result.last:.2f} %, average {result.average:.2f} %, harmonic mean of base and new classes {harmonic}.
Nothing was selected on test data. {result.note}

| | |
|---|---|
| seed | {result.seed} |
| split checksum | {result.split_checksum} |
| configuration | {result.config_hash} |
| versions | {", ".join(f"{name} {number}" for name, number in result.versions.items())} |
| trained on | {result.device} |
| command | `{result.command}` |

`config.json` holds every setting, `model.safetensors` every tensor.
"""
