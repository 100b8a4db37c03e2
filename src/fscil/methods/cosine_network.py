"""An encoder with one classifier row per class: what pre-training makes and every method here starts from."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.encoders import Encoder
from fscil.engine import processes
from fscil.images import Images, subset


class CosineNetwork(nn.Module):
    """phi and W; W grows by a row for every class that arrives.

    Two things may be done to the encoder's features, neither of them in the paper. They come from a ReLU, so a few
    dominate; raised to a power below 1 they are evened out, which helps classes that the encoder was not trained on
    (Tukey's ladder of powers). And an image may be embedded together with its mirror image, which halves the noise.
    """

    def __init__(self, encoder: Encoder, rows: Tensor, power: float = 1.0, mirror: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        self.rows = nn.Parameter(rows)
        self.power, self.mirror = power, mirror

    def forward(self, images: Tensor) -> Tensor:
        """phi(x) for gradient steps: uint8 images [n, 3, h, w] -> embeddings [n, d]"""
        return self._raise(self.encoder(images))

    def embed(self, images: Images) -> Tensor:
        """phi(x) of any number of images, without gradients and in evaluation mode; shared by all processes."""
        return processes.in_shares(len(images), lambda mine: self.embed_here(subset(images, mine)))

    def embed_here(self, images: Images) -> Tensor:
        """The same, all of it in this process."""
        return torch.cat([self._embed(part) for part in images.split(512)])

    def _embed(self, images: Tensor) -> Tensor:
        embeddings = self._raise(self.encoder.embed_here(images))
        if self.mirror:
            embeddings = (embeddings + self._raise(self.encoder.embed_here(images.flip(-1)))) / 2
        return embeddings

    def _raise(self, features: Tensor) -> Tensor:
        if self.power == 1:
            return features
        return features.clamp(min=1e-3).pow(self.power)  # at 0 the slope would be infinite

    def add_rows(self, rows: Tensor) -> None:
        self.rows = nn.Parameter(torch.cat([self.rows.detach(), rows.to(self.rows)]))


def cosine_logits(embeddings: Tensor, rows: Tensor, scale: float) -> Tensor:
    """[n, d], [C, d] -> scale * cos [n, C]"""
    return scale * F.normalize(embeddings, dim=-1) @ F.normalize(rows, dim=-1).T


def class_means(embeddings: Tensor, labels: Tensor, classes: tuple[int, ...]) -> Tensor:
    """Eq. (prototype): the mean embedding of each class, [classes, d], however many images each has."""
    return torch.stack([embeddings[labels == label].mean(0) for label in classes])
