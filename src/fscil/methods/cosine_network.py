"""An encoder with one classifier row per class: what pre-training makes and every method here starts from."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.encoders import Encoder


class CosineNetwork(nn.Module):
    """phi and W; W grows by a row for every class that arrives."""

    def __init__(self, encoder: Encoder, rows: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.rows = nn.Parameter(rows)

    def add_rows(self, rows: Tensor) -> None:
        self.rows = nn.Parameter(torch.cat([self.rows.detach(), rows.to(self.rows)]))


def cosine_logits(embeddings: Tensor, rows: Tensor, scale: float) -> Tensor:
    """[n, d], [C, d] -> scale * cos [n, C]"""
    return scale * F.normalize(embeddings, dim=-1) @ F.normalize(rows, dim=-1).T


def class_means(embeddings: Tensor, labels: Tensor, classes: tuple[int, ...]) -> Tensor:
    """Eq. (prototype): the mean embedding of each class, [classes, d], however many images each has."""
    return torch.stack([embeddings[labels == label].mean(0) for label in classes])
