"""Our Triton kernels, and whether they can be used: Triton comes with torch's CUDA builds and wants a C compiler."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch

conv_kernels: Any
norm_kernels: Any
try:
    from fscil.encoders import conv_kernels, norm_kernels
except ImportError:
    conv_kernels = norm_kernels = None


@cache
def usable(device: torch.device) -> bool:
    """Where they cannot be compiled, torch's own kernels do the same in more time; that is said once."""
    if norm_kernels is None or torch.version.cuda is None or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    partial, total = torch.zeros(2, 1, 16, device=device), torch.empty(2, 16, device=device)
    try:
        norm_kernels.total[1,](partial, total[0], total[1], 16, 1, num_warps=16)
    except Exception as error:  # whatever Triton, its compilers or the driver may raise
        warnings.warn(f"training is slower than it could be, since Triton does not work here: {error}", stacklevel=2)
        return False
    return True
