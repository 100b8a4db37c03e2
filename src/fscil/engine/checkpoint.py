"""Checkpoints: one safetensors file per stage, with its position in the stage in the header, written atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from fscil.errors import UserError
from fscil.files import write_atomically


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Tensors and a few facts about them, in one file that is written atomically."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, safetensors.torch.save(plain, metadata={"about": json.dumps(dict(about))}))


def load_tensors(
    path: Path, remedy: str = "delete it to start that part again"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("about", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); {remedy}") from error
