"""Encoder: a backbone together with how its input is prepared."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from fscil import distributed
from fscil.augment.crop import centre_crop
from fscil.errors import UserError
from fscil.images import Images, subset

# images embedded together: enough to fill a GPU, few enough that a CPU's activations stay in its cache
EMBED_AT_ONCE = {"cuda": 512, "cpu": 64}


Half = Callable[[Tensor], Tensor]  # of a backbone


class Encoder(nn.Module):
    """A backbone that crops and normalises its input, so that its users need to know nothing about the data.

    uint8 images [n, 3, height, width] -> float32 embeddings [n, dim]

    Images larger than input_size are cropped to their centre; None takes images as they are. In eval mode nothing here
    changes any state, so several threads may share one encoder.
    """

    def __init__(
        self,
        backbone: nn.Module,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        input_size: int | None = None,
        weights: str = "none",
    ) -> None:
        super().__init__()
        self.scale: Tensor
        self.shift: Tensor
        self.backbone = backbone.to(memory_format=torch.channels_last)
        # (x / 255 - mean) / std as one multiplication and one addition
        scale = 1 / (255 * torch.tensor(std).view(1, 3, 1, 1))
        self.register_buffer("scale", scale)
        self.register_buffer("shift", -255 * torch.tensor(mean).view(1, 3, 1, 1) * scale)
        self.dim = cast(int, backbone.dim)
        self.input_size = input_size
        self.weights = weights  # what the backbone started from: "none" or "NAME sha256:16HEX"
        self.autocast = False  # to bfloat16; on CUDA only, since some CPUs crash on it

    def forward(self, images: Tensor) -> Tensor:
        return self._run(self.backbone, images)

    def spatial(self, images: Tensor) -> Tensor:
        """The features before global average pooling: uint8 images [n, 3, height, width] -> float32 [n, dim, h', w']"""
        features = getattr(self.backbone, "spatial", None)
        if features is None:
            raise UserError(f"{type(self.backbone).__name__} has no spatial features; choose another encoder")
        return self._run(features, images)

    def first(self, images: Tensor) -> Tensor:
        """Features of a middle layer, from which `second` goes on: uint8 images -> float32 [n, channels, h', w']"""
        if not self.has_halves:
            raise UserError(f"{type(self.backbone).__name__} cannot be cut in two; choose another encoder")
        return self._run(cast(Half, self.backbone.first), images)

    def second(self, features: Tensor) -> Tensor:
        """Embeddings [n, dim] from features of the middle layer: forward(x) = second(first(x))"""
        return self._compute(cast(Half, self.backbone.second), features.to(self.scale))

    @property
    def has_halves(self) -> bool:
        return hasattr(self.backbone, "first") and hasattr(self.backbone, "second")

    def _run(self, network: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        images = self._crop(images)
        x = images.to(torch.float32, memory_format=torch.channels_last) * self.scale + self.shift
        return self._compute(network, x)

    def _compute(self, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        # reduced precision is for gradient steps; embeddings that are kept (prototypes, tests) stay float32
        if self.autocast and torch.is_grad_enabled():
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                return network(x).float()
        return network(x).float()

    def _crop(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        if self.input_size is None or height == width == self.input_size:
            return images
        if min(height, width) < self.input_size:
            raise UserError(
                f"the encoder needs images of at least {self.input_size} pixels a side, but these have {height} x "
                f"{width}; resize them or lower input_size"
            )
        return centre_crop(images, self.input_size)

    def embed(self, images: Images) -> Tensor:
        """Embeddings of any number of images, in evaluation mode and bounded memory; sharded over all processes."""
        return distributed.map_shards(len(images), lambda mine: self.embed_here(subset(images, mine)))

    def embed_here(self, images: Images) -> Tensor:
        """The same, entirely in this process."""
        return self._in_parts(self, images)

    def spatial_here(self, images: Tensor) -> Tensor:
        """Spatial features in evaluation mode, entirely in this process."""
        return self._in_parts(self.spatial, images)

    @torch.no_grad()
    def _in_parts(self, encode: Callable[[Tensor], Tensor], images: Images) -> Tensor:
        if not any(module.training for module in self.modules()):  # other threads may be using it: keep its mode
            return self._join(encode, images)
        was_training = self.training
        self.eval()
        try:
            return self._join(encode, images)
        finally:
            self.train(was_training)

    def _join(self, encode: Callable[[Tensor], Tensor], images: Images) -> Tensor:
        device = next(self.parameters()).device
        parts = [encode(part.to(device)) for part in images.split(EMBED_AT_ONCE[device.type])]
        return torch.cat(parts) if parts else torch.empty(0, self.dim, device=device)
