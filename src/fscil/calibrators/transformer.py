"""The calibrator of the paper's appendix A: one layer of self-attention over [classifier rows, query embedding]."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.calibrators import closed_form, kept_terms


class Transformer(nn.Module):
    """x~ = tau(x + W_FC^T sum_k alpha_qk V_k), for every x among the classifier rows and the query.

    One layer, one head; tau is dropout (on the attended part) and layer normalisation. No positions are encoded, so
    the function is permutation-equivariant in the rows.

    Args:
        dim: d, the size of an embedding
        hidden: d', the size of queries, keys and values; d in the paper
        dropout: on the projected attention output, while training
        cosine: logits are scale * cos(row~, query~), else scale * <row~, query~> as the paper writes them
        scale: multiplies the logits
        memory: MiB that the closed form may work in, beside rows, terms and logits; results do not depend on it
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
        self.kept: kept_terms.KeptTerms | None = None
        for projection in (self.W_Q, self.W_K, self.W_V, self.W_FC):
            nn.init.xavier_normal_(projection.weight)
        nn.init.zeros_(self.W_FC.bias)

    def calibrate(self, rows: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        """rows W^ [C, d], queries phi(x) [Q, d] -> W~ [Q, C, d], phi~(x) [Q, d]: each query has rows of its own."""
        tokens = torch.cat([rows.expand(len(queries), -1, -1), queries[:, None]], dim=1)
        attended = F.scaled_dot_product_attention(self.W_Q(tokens), self.W_K(tokens), self.W_V(tokens))
        tokens = self.layer_norm(tokens + self.dropout(self.W_FC(attended)))
        return tokens[:, :-1], tokens[:, -1]

    def attend(self, rows: Tensor, queries: Tensor) -> Tensor:
        """The logits by attention, query by query: what dropout needs, and the reference for the closed form."""
        rows, queries = self.calibrate(rows, queries)
        if self.cosine:
            rows, queries = F.normalize(rows, dim=-1), F.normalize(queries, dim=-1)
        return self.scale * torch.einsum("qcd,qd->qc", rows, queries)

    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        """rows [C, d], queries [Q, d] -> logits [Q, C], with gradients where they are wanted"""
        if self.training and self.dropout.p > 0:
            return self.attend(rows, queries)
        weights = closed_form.fold(self)
        return closed_form.logits(weights, closed_form.class_terms(weights, rows, self.memory), queries, self.memory)

    @torch.no_grad()
    def predict(self, rows: Tensor, queries: Tensor) -> Tensor:
        """The logits [Q, C] of evaluation, for one prediction after another.

        What depends on the rows [C, d] alone is kept for the next call. Where classes were taught (rows added at the
        end) or forgotten (rows left out) in between, it is changed in time linear in C; after any other change of
        rows or weights it is made anew, as in the first call.
        """
        if len(rows) == 0:
            return queries.new_empty(len(queries), 0)
        kept = kept_terms.update(self.kept, self, rows)
        if kept is not self.kept:
            self.kept = kept
        return closed_form.logits(kept.weights, kept.terms, queries, self.memory)
