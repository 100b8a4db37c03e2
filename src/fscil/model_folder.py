"""Model folder: config.json, model.safetensors and a model card filled in from the run. Never pickle."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch

from fscil import calibrators, encoders
from fscil import model as models
from fscil.config import Config
from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.errors import UserError
from fscil.files import write_atomically
from fscil.model import Model, ModelSpec
from fscil.results import Result
from fscil.tables import markdown_table

FORMAT = 1  # of the folder; increase it with any change that older versions of fscil cannot read


def save_model(model: Model, config: Config, result: Result, folder: Path) -> None:
    """Save a model after its last session, with all that is needed to use it."""
    facts = {
        "format": FORMAT,
        "model": dataclasses.asdict(model.spec),
        "class_names": result.class_names,
        "classes_per_session": result.classes_per_session,
        "config_hash": result.config_hash,
        "run": config.as_dict(),
    }
    save_tensors(folder / "model.safetensors", model.state_dict(), {"format": FORMAT})
    write_atomically(folder / "config.json", (json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode())
    write_atomically(folder / "README.md", card(config, result, model.spec).encode())


def load_model(folder: Path) -> tuple[Model, list[str]]:
    """The model in evaluation mode, and its classes' names. Nothing but the folder is needed."""
    facts = read_facts(folder / "config.json")
    tensors, _ = load_tensors(folder / "model.safetensors", remedy="copy the whole folder again")
    check_parts(facts)
    try:
        spec, names = ModelSpec.from_json(facts["model"]), facts["class_names"]
        with torch.random.fork_rng(devices=[]):  # building draws initial weights; leave the caller's generator alone
            model = models.build(spec, len(names))
        model.load_state_dict(tensors)
        model.requires_grad_(False).eval()
        model(torch.zeros(1, 3, spec.input_size, spec.input_size, dtype=torch.uint8))  # do its options make sense?
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        why = "tensors of other shapes" if isinstance(error, RuntimeError) else " ".join(str(error).split())[:100]
        raise UserError(f"the files of {folder} do not fit together ({why}); copy the whole folder again") from error
    return model, names


def check_parts(facts: dict[str, Any]) -> None:
    """Encoder and calibrator may belong to a package that is not installed here."""
    model = facts.get("model")
    if not isinstance(model, dict):
        return
    for what, names in {"encoder": encoders.names(), "calibrator": calibrators.names()}.items():
        if what in model and model[what] not in names:
            raise UserError(f"the model's {what} {model[what]!r} is unknown here; install the package that provides it")


def read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror}; name a model folder, such as the folder `model` of a run"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({error}); copy the whole folder again") from error
    if not isinstance(facts, dict) or type(facts.get("format")) is not int or facts["format"] < 1:
        raise UserError(f"{path} is not a model's configuration; name a model folder, such as `model` of a run")
    if facts["format"] > FORMAT:
        raise UserError(
            f"{path.parent} was written by a newer fscil (format {facts['format']}); update fscil to read it"
        )
    names = facts.get("class_names")
    if not isinstance(names, list) or not names or len({n for n in names if isinstance(n, str)}) != len(names):
        raise UserError(f"{path} does not name its classes; copy the whole folder again")
    return facts


def card(config: Config, result: Result, spec: ModelSpec) -> str:
    harmonic = "none" if result.harmonic_mean is None else f"{result.harmonic_mean:.2f}"
    changed = f", except for {', '.join(f'`{each}`' for each in result.changed)}" if result.changed else ""
    note = f"\nNote: {result.note}.\n" if result.note else ""
    memory = "" if result.memory == "none" else f"| images kept | {result.exemplars} (memory {result.memory}) |\n"
    return f"""---
library_name: fscil
tags: [few-shot-class-incremental-learning, image-classification]
---
# {config.preset} on {result.title or result.benchmark}

A classifier over {len(result.class_names)} classes: {result.classes_per_session[0]} learned from plenty of images,
{sum(result.classes_per_session[1:])} taught from a few each.

```python
import fscil

model = fscil.load("PATH OF THIS FOLDER")
model.predict("photo.jpg")
```

{markdown_table([result])}

Last session {result.last:.2f} %, average {result.average:.2f} %, harmonic mean of base and new classes {harmonic}.

Training ended with its last step, and the run used its test images only to measure the model. The settings are the
defaults of `{config.preset}` on `{config.benchmark}`{changed}. How they were chosen, and whether test images had a part
in that, a run cannot know.
{note}
| | |
|---|---|
| encoder | {spec.encoder}, weights {spec.weights} |
| images | resized to {spec.stored_size} pixels per side, of which the encoder sees the central {spec.input_size} |
{memory}| seed | {result.seed} |
| split checksum | {result.split_checksum} |
| configuration | {result.config_hash} |
| versions | {", ".join(f"{name} {number}" for name, number in result.versions.items())} |
| trained on | {result.device} |
| command | `{result.command}` |

`config.json` holds every setting, `model.safetensors` every tensor.
"""
