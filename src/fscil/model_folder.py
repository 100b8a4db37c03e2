"""Model folder: config.json, model.safetensors and a model card filled in from the run. Never pickle."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fscil import calibrators, encoders
from fscil import model as models
from fscil.encoders.timm_models import PREFIX as TIMM
from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.errors import UserError
from fscil.files import check_regular, write_atomically
from fscil.model import Model, ModelSpec
from fscil.model_facts import FORMAT, REMEDY, TAUGHT, read_facts

if TYPE_CHECKING:  # a model is loaded without what a run needs
    from fscil.config import Config
    from fscil.results import Result

__all__ = ["FORMAT", "REMEDY", "TAUGHT", "load_model", "read_facts", "save_model"]


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
    tensors = read_tensors(folder / "model.safetensors")
    check_parts(facts)
    try:
        spec, names = ModelSpec.from_json(facts["model"]), facts["class_names"]
        with torch.random.fork_rng(devices=[]):  # building draws initial weights; leave the caller's generator alone
            model = models.build(spec, len(names))
        check_types(tensors, model.state_dict())
        model.load_state_dict(tensors)
        model.requires_grad_(False).eval()
        # do its options make sense?
        logits = model(torch.zeros(1, 3, spec.input_size, spec.input_size, dtype=torch.uint8))
        if not logits.isfinite().all():
            raise ValueError("it gives no finite numbers")
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        why = "tensors of other shapes" if isinstance(error, RuntimeError) else " ".join(str(error).split())[:100]
        raise UserError(f"the files of {folder} do not fit together ({why}); {REMEDY}") from error
    return model, names


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        check_regular(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); {REMEDY}") from error
    tensors, _ = load_tensors(path, remedy=REMEDY)
    infinite = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if infinite:
        raise UserError(f"{path} holds NaN or infinite values, first in {infinite[0]!r}; {REMEDY}")
    return tensors


def check_types(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """torch would convert whole numbers to weights without a word."""
    for name in given.keys() & wanted.keys():
        if given[name].dtype != wanted[name].dtype:
            raise TypeError(f"{name} is {given[name].dtype}, not {wanted[name].dtype}")


def check_parts(facts: dict[str, Any]) -> None:
    """Encoder and calibrator may belong to a package that is not installed here."""
    model = facts.get("model")
    if not isinstance(model, dict):
        return
    known = encoders.names()
    if str(model.get("encoder")).startswith(TIMM):
        encoders.check(model["encoder"])  # says what to install
        known = [model["encoder"]]
    for what, names in {"encoder": known, "calibrator": calibrators.names()}.items():
        if what in model and model[what] not in names:
            raise UserError(f"the model's {what} {model[what]!r} is unknown here; install the package that provides it")


def card(config: Config, result: Result, spec: ModelSpec) -> str:
    from fscil.tables import markdown_table

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
