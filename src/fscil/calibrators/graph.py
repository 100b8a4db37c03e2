"""Attention over the classifier rows alone, as CEC's paper has it: a graph whose nodes are classifiers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.calibrators.attention import attend_in_blocks
from fscil.calibrators.calibrator import Calibrator


class Graph(Calibrator):
    """W~ = tau(W + W_FC^T sum_k alpha_ik V_k), for every classifier row; the query stays as it is.

    The same layer as the transformer, but rows attend to rows only, so calibrated rows do not depend on the image. No
    positions are encoded: the function is permutation-equivariant in the rows.

    Args:
        dim: d, the size of an embedding
        hidden: size of queries, keys and values; d by default
        dropout: on the projected attention output, while training
        cosine: logits are scale * cos(row~, query), else scale * <row~, query>
        scale: multiplies the logits
        memory: MiB for attention scores, while predicting; does not affect the results
    """

    permutation_equivariant = True

    def __init__(
        self,
        dim: int,
        hidden: int | None = None,
        *,
        dropout: float = 0.5,
        cosine: bool = False,
        scale: float = 1.0,
        memory: float = 32.0,
    ) -> None:
        super().__init__()
        hidden = hidden or dim
        self.W_Q = nn.Linear(dim, hidden, bias=False)
        self.W_K = nn.Linear(dim, hidden, bias=False)
        self.W_V = nn.Linear(dim, hidden, bias=False)
        self.W_FC = nn.Linear(hidden, dim)
        self.layer_norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.cosine, self.scale, self.memory = cosine, scale, memory
        for projection in (self.W_Q, self.W_K, self.W_V, self.W_FC):
            nn.init.xavier_normal_(projection.weight)
        nn.init.zeros_(self.W_FC.bias)

    @property
    def options(self) -> dict[str, Any]:
        return {
            "hidden": self.W_Q.out_features,
            "dropout": self.dropout.p,
            "cosine": self.cosine,
            "scale": self.scale,
            "memory": self.memory,
        }

    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        """rows [C, d], queries [Q, d] -> logits [Q, C]"""
        return self._logits(rows, queries, self.dropout)

    @torch.no_grad()
    def predict(self, rows: Tensor, queries: Tensor) -> Tensor:
        return self._logits(rows, queries, nn.Identity())

    def _logits(self, rows: Tensor, queries: Tensor, drop: nn.Module) -> Tensor:
        if rows.shape[0] == 0:
            return queries.new_empty(queries.shape[0], 0)
        rows = self._calibrate(rows, drop)
        if self.cosine:
            rows, queries = F.normalize(rows, dim=-1), F.normalize(queries, dim=-1)
        return self.scale * queries @ rows.T

    def _calibrate(self, rows: Tensor, drop: nn.Module) -> Tensor:
        """rows W [C, d] -> W~ [C, d]"""
        tokens = self.W_Q(rows) * self.W_Q.out_features**-0.5
        attended, _ = attend_in_blocks(tokens, self.W_K(rows), self.W_V(rows), self.memory)
        found: Tensor = self.layer_norm(rows + drop(self.W_FC(attended)))
        return found
