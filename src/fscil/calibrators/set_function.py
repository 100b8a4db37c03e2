"""What calibrators that learn have in common: their options, dropout and layer normalisation."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.calibrators.calibrator import Calibrator


class SetFunction(Calibrator):
    """x~ = tau(x + what a subclass has to say about x); tau is dropout (on what is added) and layer normalisation.

    Args:
        dim: d, the size of an embedding
        hidden: size of what is computed inside; d by default
        dropout: on what is added, while training
        cosine: logits are scale * cos(row~, query~), else scale * <row~, query~>
        scale: multiplies the logits
        query_length: with cosine, so does |query~|: logits are scale * <row~ / |row~|, query~>
        memory: MiB for intermediate results of predictions, or as much as one query needs; does not affect the results
    """

    def __init__(
        self,
        dim: int,
        hidden: int | None = None,
        *,
        dropout: float = 0.5,
        cosine: bool = False,
        scale: float = 1.0,
        memory: float = 32.0,
        query_length: bool = False,
    ) -> None:
        super().__init__()
        self.hidden = hidden or dim
        self.add_layers(dim, self.hidden)
        self.layer_norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.cosine, self.scale, self.memory, self.query_length = cosine, scale, memory, query_length

    @abstractmethod
    def add_layers(self, dim: int, hidden: int) -> None:
        """The layers of the subclass."""

    @property
    def options(self) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in ("hidden", "cosine", "scale", "memory")}
        return {**named, "dropout": self.dropout.p, **({"query_length": True} if self.query_length else {})}

    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        """rows [C, d], queries [Q, d] -> logits [Q, C]"""
        return self._logits(rows, queries, self.dropout)

    @torch.no_grad()
    def predict(self, rows: Tensor, queries: Tensor) -> Tensor:
        return self._logits(rows, queries, nn.Identity())

    @abstractmethod
    def _logits(self, rows: Tensor, queries: Tensor, drop: nn.Module) -> Tensor:
        """With dropout, or with nothing in its place."""

    def compare(self, rows: Tensor, queries: Tensor) -> Tensor:
        """Every query's own rows W~ [Q, C, d], phi~(x) [Q, d] -> logits [Q, C]"""
        return self.scale * torch.einsum("qcd,qd->qc", *self.to_length(rows, queries))

    def to_length(self, rows: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        """As long as inner products need them: rows [..., d] and queries [Q, d]"""
        if not self.cosine:
            return rows, queries
        return F.normalize(rows, dim=-1), queries if self.query_length else F.normalize(queries, dim=-1)

    def tau(self, x: Tensor, added: Tensor, drop: nn.Module) -> Tensor:
        found: Tensor = self.layer_norm(x + drop(added))
        return found


class Attention(SetFunction):
    """Adds W_FC^T sum_k alpha_k V_k: one layer and one head of attention; hidden is the size of Q, K and V."""

    def add_layers(self, dim: int, hidden: int) -> None:
        self.W_Q = nn.Linear(dim, hidden, bias=False)
        self.W_K = nn.Linear(dim, hidden, bias=False)
        self.W_V = nn.Linear(dim, hidden, bias=False)
        self.W_FC = nn.Linear(hidden, dim)
        for projection in (self.W_Q, self.W_K, self.W_V, self.W_FC):
            nn.init.xavier_normal_(projection.weight)
        nn.init.zeros_(self.W_FC.bias)
