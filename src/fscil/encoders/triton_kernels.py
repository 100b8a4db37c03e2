"""Our Triton kernels, where there is a Triton: it comes with torch's CUDA builds."""

from __future__ import annotations

from typing import Any

conv_kernels: Any
norm_kernels: Any
try:
    from fscil.encoders import conv_kernels, norm_kernels
except ImportError:
    conv_kernels = norm_kernels = None
