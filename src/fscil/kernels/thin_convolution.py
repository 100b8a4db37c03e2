"""3 x 3 convolutions of few channels in reduced precision: where a ResNet20 spends its time."""

from __future__ import annotations

import torch
from torch import Tensor

from fscil.kernels import triton as triton_kernels
from fscil.kernels.triton import OPTIONS
from fscil.kernels.triton import conv as kernels

# numbers of channels for which these kernels are faster than cuDNN's
CONVOLVED, SUMMED = (16,), (16, 32)


def is_thin(
    x: Tensor, weight: Tensor, stride: tuple[int, ...], padding: tuple[int, ...], channels: tuple[int, ...]
) -> bool:
    """Whether the number of channels is one of these and the kernels support everything else."""
    C = weight.shape[0]
    return (
        x.is_cuda
        and triton_kernels.usable(x.device)
        and x.dtype == weight.dtype == torch.bfloat16
        and C in channels
        and weight.shape == (C, C, 3, 3)
        and (tuple(stride), tuple(padding)) == ((1, 1), (1, 1))
        and all(each.is_contiguous(memory_format=torch.channels_last) for each in (x, weight))
        and 0 < x.numel() < 2**31
    )


def convolve(x: Tensor, weight: Tensor, of_input: bool = False) -> Tensor:
    """x * weight; or, with x the gradient of that, the gradient of x."""
    y = torch.empty_like(x)
    pixels, height, width = sizes(x)
    kernels.convolve[tiles(pixels),](x, weight, y, pixels, height, width, x.shape[1], of_input, **OPTIONS)
    return y


def weight_gradient(x: Tensor, g: Tensor) -> Tensor:
    """float32 [C, C, 3, 3], in the layout channels_last"""
    pixels, height, width = sizes(x)
    C = x.shape[1]
    per_part = -(-tiles(pixels) // (4096 // C))  # many parts fill a GPU, few are quick to sum
    parts = -(-tiles(pixels) // per_part)
    partial = torch.empty(parts, C, 3, 3, C, device=x.device)
    kernels.weight_gradient[3 * parts,](x, g, partial, pixels, height, width, per_part, C, num_stages=2, **OPTIONS)
    return partial.sum(0).permute(0, 3, 1, 2)


def sizes(x: Tensor) -> tuple[int, int, int]:
    return x.numel() // x.shape[1], x.shape[2], x.shape[3]


def tiles(pixels: int) -> int:
    return -(-pixels // kernels.PIXELS.value)
