"""A convolution whose weight gradient is computed in parallel with the rest of the backward pass.

Only the optimiser needs the weight gradients, and with few channels they leave most of a GPU idle. So they run in their
own stream while the backward pass continues through the layers below: an eighth less time for a step of ResNet20.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fscil.kernels.thin_convolution import CONVOLVED, SUMMED, convolve, is_thin, weight_gradient


class Conv2d(nn.Conv2d):
    """nn.Conv2d without bias; on CUDA its weight gradient has its own stream.

    This is valid for a layer whose output goes to one place (a normalisation, say) and whose gradients are read after
    the whole backward pass: training as the engine does it. Double backward is not supported. There is no second stream
    where a gradient is read at once: with hooks on the weight, beside an existing gradient, or when the layer was used
    several times and autograd adds up the gradients of all its uses.
    """

    def __init__(self, channels_in: int, channels_out: int, size: int, stride: int = 1, padding: int = 0) -> None:
        super().__init__(channels_in, channels_out, size, stride, padding, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda and torch.is_grad_enabled() and self.weight.requires_grad:
            return _Convolution.apply(x, self.weight, self.stride, self.padding)
        return super().forward(x)


@cache
def beside(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


COMPUTED_BESIDE: set[int] = set()  # ids of the weights whose gradient this backward pass has computed there


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
        ctx.weight, ctx.input_type, ctx.stride, ctx.padding = weight, x.dtype, stride, padding
        if torch.is_autocast_enabled("cuda"):  # torch does this for its own operations, not inside ours
            x, weight = (t.to(torch.get_autocast_dtype("cuda")) for t in (x, weight))
        ctx.save_for_backward(x, weight)
        if is_thin(x, weight, stride, padding, CONVOLVED):
            return convolve(x, weight)
        with torch.autocast("cuda", enabled=False):
            return F.conv2d(x, weight, None, stride, padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)

        def backward(of_input: bool) -> Tensor:
            if is_thin(x, weight, ctx.stride, ctx.padding, CONVOLVED if of_input else SUMMED):
                return convolve(gradient, weight, of_input=True) if of_input else weight_gradient(x, gradient)
            result = torch.ops.aten.convolution_backward(
                gradient, x, weight, None, ctx.stride, ctx.padding, [1, 1], False, [0, 0], 1,
                [of_input, not of_input, False],
            )  # fmt: skip
            return result[0 if of_input else 1]

        def of_weight() -> Tensor:
            """In the parameter's own type and layout; otherwise autograd would copy it before it is ready."""
            return torch.empty_like(ctx.weight).copy_(backward(of_input=False))

        main, side = torch.cuda.current_stream(x.device), beside(x.device)
        own = id(ctx.weight)
        if used_before := own in COMPUTED_BESIDE:
            main.wait_stream(side)  # autograd adds this gradient to the one that was computed there
        if used_before or ctx.weight.grad is not None or ctx.weight._backward_hooks:  # it is read at once
            dW = of_weight()
        else:
            side.wait_stream(main)
            with torch.cuda.stream(side):
                dW = of_weight()
            for used in (x, gradient):
                used.record_stream(side)
            COMPUTED_BESIDE.add(own)

            def finish() -> None:
                main.wait_stream(side)
                COMPUTED_BESIDE.discard(own)

            # after the whole backward pass, the current stream waits for the weight gradients
            torch.autograd.Variable._execution_engine.queue_callback(finish)
        dx = backward(of_input=True).to(ctx.input_type) if ctx.needs_input_grad[0] else None
        return dx, dW, None, None
