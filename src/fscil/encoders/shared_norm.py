"""Batch normalisation with the statistics of the whole step, although each rank encodes only a shard of it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil import distributed

PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class SharedBatchNorm(nn.SyncBatchNorm):
    """torch's SyncBatchNorm, plus a CPU version, which torch lacks."""

    def forward(self, input: Tensor) -> Tensor:
        if input.is_cuda or not self.training or distributed.world_size() == 1:
            return super().forward(input)
        mean, variance, n = moments(input.detach())
        if self.track_running_stats:
            self._remember(mean, variance * n / (n - 1))
        weight = torch.ones_like(mean) if self.weight is None else self.weight
        bias = torch.zeros_like(mean) if self.bias is None else self.bias
        normalised: Tensor = _Normalise.apply(input, weight, bias, mean, variance, n, self.eps)
        return normalised

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        self.num_batches_tracked += 1
        weight = self.momentum if self.momentum is not None else 1 / int(self.num_batches_tracked)
        self.running_mean.lerp_(mean, weight)
        self.running_var.lerp_(variance, weight)


class SharedBatchNormAct(SharedBatchNorm):
    """For timm's BatchNormAct2d, which has an activation of its own."""

    drop: nn.Module
    act: nn.Module

    def forward(self, input: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(input)))


def moments(x: Tensor) -> tuple[Tensor, Tensor, int]:
    """Mean and (biased) variance of each channel over all processes [channels], and the count of values behind them."""
    means, variances = torch.batch_norm_update_stats(x, None, None, 0)  # many times faster than torch.var_mean
    count = means.new_tensor([x.numel() // x.shape[1]])
    every = distributed.all_gather(torch.cat([means, variances, count]).double())
    means, variances, counts = every.split([x.shape[1], x.shape[1], 1], 1)  # a row per process
    n = counts.sum()
    mean = (counts * means).sum(0) / n
    variance = (counts * (variances + (means - mean) ** 2)).sum(0) / n
    return mean.to(x.dtype), variance.to(x.dtype), int(n)


class _Normalise(torch.autograd.Function):
    """y = w x^ + b with x^ = (x - mean) / std, where mean and std depend on x in all processes."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, n: int, eps: float
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, (variance + eps).rsqrt())
        ctx.n, ctx.eps = n, eps
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """dL/dx = w / std (g - mean(g) - x^ mean(g x^)) with g = dL/dy and means over all processes"""
        g = gradients[0]
        x, weight, mean, inverse_std = ctx.saved_tensors
        # this process's sums of g x^ and of g
        _, sum_gx, sum_g = torch.ops.aten.native_batch_norm_backward(
            g, x, weight, None, None, mean, inverse_std, True, ctx.eps, [False, True, True]
        )
        mean_gx, mean_g = distributed.all_reduce(torch.stack([sum_gx, sum_g])) / ctx.n
        of_g = weight * inverse_std
        of_x = -of_g * inverse_std * mean_gx
        constant = -of_g * mean_g - of_x * mean
        dx = torch.addcmul(along_channels(constant, x), x, along_channels(of_x, x))
        return dx.addcmul_(g, along_channels(of_g, x)), sum_gx, sum_g, None, None, None, None


def along_channels(values: Tensor, x: Tensor) -> Tensor:
    """[channels] -> [1, channels, 1, ...]"""
    return values.view(1, -1, *[1] * (x.dim() - 2))


def share_statistics(module: nn.Module) -> None:
    """Replace batch normalisation of torch and timm inside the module; its state keeps its names and tensors."""
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) in PLAIN:
                setattr(parent, name, _shared(child, SharedBatchNorm))
            elif isinstance(child, PLAIN) and type(child).__name__ == "BatchNormAct2d":
                setattr(parent, name, _shared(child, SharedBatchNormAct, "drop", "act"))


def _shared(norm: Any, kind: type[SharedBatchNorm], *modules: str) -> SharedBatchNorm:
    shared = kind(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked", *modules):
        setattr(shared, name, getattr(norm, name))
    return shared.train(norm.training)
