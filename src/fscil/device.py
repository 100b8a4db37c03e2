"""Which device to compute on."""

from __future__ import annotations

import torch

from fscil import distributed
from fscil.errors import UserError


def choose_device(name: str | None) -> torch.device:
    """cpu or cuda; None: cuda if available. Each rank on a machine takes its own GPU."""
    if name not in (None, "cpu", "cuda"):
        raise UserError(f"unknown device {name!r}: it is cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("no CUDA device is available here; choose cpu, or install a CUDA build of torch")
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda":
        distributed.select_gpu()
    return device
