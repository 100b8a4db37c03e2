"""A bidirectional LSTM as a calibrator, which the paper leaves to future work; the form is that of FEAT (Ye et al.)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fscil.calibrators.attention import at_once
from fscil.calibrators.calibrator import Calibrator, compare

MATRICES = 9  # of [queries, classes, d] that are alive at once: tokens, an LSTM's four gates, states, their sum


class BiLSTM(Calibrator):
    """x~ = tau(x + f(x) + b(x)), for every x of the sequence [classifier rows, query].

    f is the state of an LSTM that read the sequence up to x, b that of one that read it from its end; tau is dropout
    (on f + b) and layer normalisation, as in the transformer. The query comes last, so that b carries it to every row.

    A sequence is no set: logits depend on the order in which classes arrived. `changed_by_order` measures how much.

    Args:
        dim: d, the size of an embedding and of the states
        dropout: on f + b, while training
        cosine: logits are scale * cos(row~, query~), else scale * <row~, query~>
        scale: multiplies the logits
        memory: MiB for intermediate results of predictions, or as much as one query needs; does not affect the results
    """

    permutation_equivariant = False

    def __init__(
        self,
        dim: int,
        *,
        dropout: float = 0.5,
        cosine: bool = False,
        scale: float = 1.0,
        memory: float = 32.0,
    ) -> None:
        super().__init__()
        self.f = nn.LSTM(dim, dim, batch_first=True)
        self.b = nn.LSTM(dim, dim, batch_first=True)
        self.layer_norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.cosine, self.scale, self.memory = cosine, scale, memory

    @property
    def options(self) -> dict[str, Any]:
        return {"dropout": self.dropout.p, "cosine": self.cosine, "scale": self.scale, "memory": self.memory}

    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        """rows [C, d], queries [Q, d] -> logits [Q, C]"""
        return self._logits(rows, queries, self.dropout)

    @torch.no_grad()
    def predict(self, rows: Tensor, queries: Tensor) -> Tensor:
        return self._logits(rows, queries, nn.Identity())

    def _logits(self, rows: Tensor, queries: Tensor, drop: nn.Module) -> Tensor:
        """Some queries at a time."""
        exported = torch.compiler.is_compiling()
        if rows.shape[0] == 0 or (not exported and len(queries) == 0):
            return queries.new_empty(queries.shape[0], rows.shape[0])
        f_rows, (state, cell) = self.f(rows[None])  # the same for all queries, which come later

        def some(x: Tensor) -> Tensor:
            last = (each.expand(-1, x.shape[0], -1).contiguous() for each in (state, cell))
            f_query, _ = self.f(x[:, None], tuple(last))
            from_end = torch.cat([x[:, None], rows.flip(0).expand(x.shape[0], -1, -1)], 1)
            b, _ = self.b(from_end)
            calibrated_rows = self.layer_norm(rows + drop(f_rows + b[:, 1:].flip(1)))
            calibrated_query = self.layer_norm(x + drop(f_query[:, 0] + b[:, 0]))
            return compare(calibrated_rows, calibrated_query, self.cosine, self.scale)

        if exported:  # an exported program must not depend on the number of queries
            return some(queries)
        step = at_once(self.memory, MATRICES * rows.numel() * rows.element_size())
        return torch.cat([some(x) for x in queries.split(step)])
