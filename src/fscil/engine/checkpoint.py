"""Checkpoints: one safetensors file per stage, with its position in the stage in the header, written atomically."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fscil.errors import UserError
from fscil.files import read_regular, write_atomically

LARGEST_FILE = 2**36  # bytes


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Tensors and a few facts about them, in one file with a checksum that is written atomically."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    signed = {**about, "checksum": checksum(plain, about)}
    # one entry, since safetensors writes several in any order, and equal runs write equal files
    write_atomically(path, safetensors.torch.save(plain, metadata={"about": json.dumps(signed)}))


def load_tensors(
    path: Path, remedy: str = "delete it to start that part again"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What save_tensors wrote; a file that has changed since is refused."""
    try:
        data = read_regular(path, LARGEST_FILE)  # by name safetensors reads only what is UTF-8
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        about = json.loads(header.get("__metadata__", {}).get("about", "{}"))
        if not isinstance(about, dict) or about.pop("checksum", "") != checksum(tensors, about):
            raise ValueError("its checksum is wrong")
        return tensors, about
    # safetensors raises nearly anything on types that torch does not have
    except (
        OSError,
        safetensors.SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RuntimeError,
    ) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
        raise UserError(f"{path} cannot be read ({reason[:200]}); {remedy}") from error


def checksum(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> str:
    """Of all facts, names, types, shapes and bytes."""
    found = hashlib.sha256(json.dumps(dict(about)).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        if tensor.numel():  # an empty one may have strides that cannot be viewed as bytes
            found.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()
