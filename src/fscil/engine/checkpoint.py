"""Checkpoints: one safetensors file per stage, with its position in the stage in the header, written atomically."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from fscil.arrays import Described, load_signed, signature
from fscil.files import write_atomically


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Tensors and a few facts about them, in one file with a checksum that is written atomically."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, safetensors.torch.save(plain, metadata=signature(described(plain), about)))


def load_tensors(
    path: Path, remedy: str = "delete it to start that part again"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What save_tensors wrote; a file that has changed since is refused."""
    return load_signed(path, safetensors.torch.load, described, remedy)


def described(tensors: Mapping[str, Tensor]) -> Iterable[Described]:
    for name in sorted(tensors):
        tensor = tensors[name]
        # an empty one may have strides that cannot be viewed as bytes
        data = tensor.contiguous().flatten().view(torch.uint8).numpy().data if tensor.numel() else b""
        yield name, str(tensor.dtype), list(tensor.shape), data
