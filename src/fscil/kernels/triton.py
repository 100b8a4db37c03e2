"""Our Triton kernels, and whether they can be used: Triton comes with torch's CUDA builds and needs a C compiler."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from importlib.util import LazyLoader, find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

import torch


def later(name: str) -> Any:
    """A module that is imported when it is first used: Triton takes a while, and only GPUs need it."""
    spec = find_spec(f"fscil.kernels.{name}")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = LazyLoader(spec.loader)
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from fscil.kernels import conv as conv
    from fscil.kernels import norm as norm
elif find_spec("triton") is None:
    conv = norm = None
else:
    conv, norm = later("conv"), later("norm")


# of every launch; if unset, Triton warns that its default will change
OPTIONS = {"enable_fp_fusion": True}


def usable(device: torch.device) -> bool:
    """Triton launches on the current device; elsewhere, and where it does not work, torch's own kernels are used."""
    return device.index == torch.cuda.current_device() and works(device)


@cache
def works(device: torch.device) -> bool:
    """Whether Triton can compile for this device and run there; if not, warns once."""
    if norm is None or torch.version.cuda is None or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    x, weight = torch.zeros(8 * 8, 16, device=device).bfloat16(), torch.zeros(16 * 9, 16, device=device).bfloat16()
    partial = torch.zeros(2, 16, 9, 16, device=device)
    try:
        norm.total[1,](partial, partial[0], partial[1], 16, 1, num_warps=16, **OPTIONS)
        conv.convolve[1,](x, weight, x, 64, 8, 8, 16, False, **OPTIONS)
        conv.weight_gradient[3,](x, x, partial, 64, 8, 8, 1, 16, num_stages=2, **OPTIONS)
    except Exception as error:  # whatever Triton, its compilers or the driver may raise
        warnings.warn(f"training is slower than it could be, since Triton does not work here: {error}", stacklevel=2)
        return False
    return True
