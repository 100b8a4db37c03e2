"""An encoder with one classifier row per class: what pre-training makes and every method here starts from."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil import distributed
from fscil.encoders import Encoder
from fscil.errors import UserError
from fscil.images import Images, subset


class CosineNetwork(nn.Module):
    """phi and W; W grows by a row for every class that arrives.

    Three things may be done to the encoder's features, none of them in the paper. They come from a ReLU, so a few
    dominate; raised to a power below 1 they are evened out, which helps classes that the encoder was not trained on
    (Tukey's ladder of powers). An image may be embedded together with its mirror image, which halves the noise. And
    directions in which images of one class differ may be made to count less (whitening, as in discriminant analysis).
    """

    def __init__(self, encoder: Encoder, rows: Tensor, power: float = 1.0, mirror: bool = False) -> None:
        super().__init__()
        self.whitening: Tensor
        self.encoder = encoder
        self.rows = nn.Parameter(rows)
        self.power, self.mirror = power, mirror
        self.register_buffer("whitening", torch.eye(encoder.dim))

    def forward(self, images: Tensor) -> Tensor:
        """phi(x) for gradient steps: uint8 images [n, 3, h, w] -> embeddings [n, d]"""
        return self._raise(self.encoder(images)) @ self.whitening

    def embed(self, images: Images) -> Tensor:
        """phi(x) of any number of images, without gradients and in evaluation mode; shared by all processes."""
        return distributed.map_shards(len(images), lambda mine: self.embed_here(subset(images, mine)))

    def embed_here(self, images: Images) -> Tensor:
        """The same, all of it in this process."""
        return torch.cat([self._embed(part) for part in images.split(512)])

    def _embed(self, images: Tensor) -> Tensor:
        embeddings = self._raise(self.encoder.embed_here(images))
        if self.mirror:
            embeddings = (embeddings + self._raise(self.encoder.embed_here(images.flip(-1)))) / 2
        return embeddings @ self.whitening

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


def whitening(embeddings: Tensor, labels: Tensor, shrinkage: float) -> Tensor:
    """A [d, d]: (S + shrinkage * mean variance * I)^(-1/2), turned and scaled, where S is the covariance in classes.

    Embeddings times A vary about as much in all directions within a class; the more so, the less S is shrunk. What
    turns and scales A is of no matter to cosines, but to calibration: layer normalisation subtracts the mean over
    coordinates, so that is put where class means have little, or, if they are fewer than d, next to nothing; and
    embeddings keep their mean length.
    """
    S = torch.zeros(embeddings.shape[1], embeddings.shape[1], dtype=torch.float64)
    means = []
    for label in labels.unique():
        own = embeddings[labels == label].double()
        means.append(own.mean(0).cpu())
        S += ((own - own.mean(0)).T @ (own - own.mean(0))).cpu() / len(embeddings)
    variances, directions = torch.linalg.eigh(S)
    if variances.mean() <= 0:
        raise UserError("whiten needs base classes with two different images or more; set whiten=0")
    A = directions * (variances + shrinkage * variances.mean()).rsqrt() @ directions.T
    M, ones = torch.stack(means) @ A, torch.ones(len(A), dtype=A.dtype)
    # Of the many directions that few class means leave free, the one nearest to ones: rounding must not choose it.
    least = torch.linalg.solve(M.T @ M + 1e-6 * M.square().sum() / len(A) * torch.eye(len(A)), ones)
    A = (A @ reflection(least, ones)).to(embeddings)
    return A * (embeddings.norm(dim=1).mean() / (embeddings @ A).norm(dim=1).mean())


def reflection(a: Tensor, b: Tensor) -> Tensor:
    """The Householder matrix [d, d] that turns the direction of a into that of b."""
    v = F.normalize(F.normalize(a, dim=0) - F.normalize(b, dim=0), dim=0)
    return torch.eye(len(a)).to(a) - 2 * torch.outer(v, v)
