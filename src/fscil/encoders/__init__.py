"""Encoders: uint8 images to embeddings (the paper's phi). A registry maps names to backbones."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import cast

import torch
from torch import Tensor, nn

from fscil import distributed
from fscil.encoders.resnet18 import resnet18
from fscil.encoders.resnet20 import resnet20
from fscil.encoders.shared_norm import share_statistics
from fscil.images import Images, subset
from fscil.naming import choose

# images that are embedded together: a GPU wants to be filled, a CPU's activations should stay in its cache
EMBED_AT_ONCE = {"cuda": 512, "cpu": 64}

BACKBONES: dict[str, Callable[[], nn.Module]] = {"resnet20": resnet20, "resnet18": resnet18}


class Encoder(nn.Module):
    """A backbone with the normalisation of its input, so that whoever holds it needs to know nothing about the data.

    uint8 images [n, 3, height, width] -> float32 embeddings [n, dim]
    """

    def __init__(self, backbone: nn.Module, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.scale: Tensor
        self.shift: Tensor
        self.backbone = backbone.to(memory_format=torch.channels_last)
        # (x / 255 - mean) / std as one multiplication and one addition
        scale = 1 / (255 * torch.tensor(std).view(1, 3, 1, 1))
        self.register_buffer("scale", scale)
        self.register_buffer("shift", -255 * torch.tensor(mean).view(1, 3, 1, 1) * scale)
        self.dim = cast(int, backbone.dim)
        self.autocast = False  # to bfloat16; CUDA alone, since some CPUs crash on it

    def forward(self, images: Tensor) -> Tensor:
        x = images.to(torch.float32, memory_format=torch.channels_last) * self.scale + self.shift
        # reduced precision is for gradient steps; embeddings that are kept (prototypes, tests) stay float32
        if self.autocast and torch.is_grad_enabled():
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                return self.backbone(x).float()
        return self.backbone(x).float()

    def embed(self, images: Images) -> Tensor:
        """Embeddings of any number of images, in evaluation mode and bounded memory; shared by all processes."""
        return distributed.map_shards(len(images), lambda mine: self.embed_here(subset(images, mine)))

    @torch.no_grad()
    def embed_here(self, images: Images) -> Tensor:
        """The same, all of it in this process."""
        was_training = self.training
        self.eval()
        device = next(self.parameters()).device
        parts = [self(part.to(device)) for part in images.split(EMBED_AT_ONCE[device.type])]
        self.train(was_training)
        return torch.cat(parts) if parts else torch.empty(0, self.dim, device=device)


def build(name: str, mean: tuple[float, ...], std: tuple[float, ...]) -> Encoder:
    """The encoder of that name, freshly initialised from torch's global generator."""
    backbones = {**BACKBONES, **{point.name: point.load for point in entry_points(group="fscil.encoders")}}
    key = choose(name, backbones, "encoder")
    backbone = BACKBONES[key]() if key in BACKBONES else backbones[key]()()
    if distributed.world_size() > 1:
        share_statistics(backbone)
    return Encoder(backbone, mean, std)
