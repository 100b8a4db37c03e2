"""The calibrator of the paper's appendix A: one layer of self-attention over [classifier rows, query embedding]."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.calibrators import closed_form, kept_terms
from fscil.calibrators.set_function import Attention


class Transformer(Attention):
    """x~ = tau(x + W_FC^T sum_k alpha_qk V_k), for every x among the classifier rows and the query.

    No positions are encoded, so the function is permutation-equivariant in the rows.

    Args: those of SetFunction, and
        slots: classes that there will ever be, if the ones not yet taught take part in attention: learned placeholders,
            each of which leaves when its class arrives (LIMIT's released code; the paper has 0)
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
        query_length: bool = False,
        slots: int = 0,
    ) -> None:
        super().__init__(
            dim, hidden, dropout=dropout, cosine=cosine, scale=scale, memory=memory, query_length=query_length
        )
        self.slots = slots
        self.placeholders = nn.Parameter(torch.zeros(slots, dim)) if slots else None
        self.kept: kept_terms.KeptTerms | None = None

    @property
    def options(self) -> dict[str, Any]:
        return {**super().options, **({"slots": self.slots} if self.slots else {})}

    def with_placeholders(self, rows: Tensor) -> Tensor:
        """All classes that take part in attention, those of the rows first: [C, d] -> [max(C, slots), d]"""
        return rows if self.placeholders is None else torch.cat([rows, self.placeholders[rows.shape[0] :]])

    def calibrate(self, rows: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        """rows W^ [C, d], queries phi(x) [Q, d] -> W~ [Q, C, d], phi~(x) [Q, d]: each query has its own rows."""
        tokens = torch.cat([rows.expand(len(queries), -1, -1), queries[:, None]], dim=1)
        attended = F.scaled_dot_product_attention(self.W_Q(tokens), self.W_K(tokens), self.W_V(tokens))
        tokens = self.tau(tokens, self.W_FC(attended), self.dropout)
        return tokens[:, :-1], tokens[:, -1]

    def attend(self, rows: Tensor, queries: Tensor) -> Tensor:
        """Logits by attention, query by query: required by dropout, and the reference for the closed form."""
        calibrated, queries = self.calibrate(self.with_placeholders(rows), queries)
        return self.compare(calibrated[:, : len(rows)], queries)

    def _logits(self, rows: Tensor, queries: Tensor, drop: nn.Module) -> Tensor:
        if drop.training and self.dropout.p > 0:
            return self.attend(rows, queries)
        return self._closed_form(rows, queries)

    def recur(self, rows: Tensor, queries: Tensor, depth: int) -> list[Tensor]:
        """Logits [Q, C] at depths 1, 2, ...: the calibrated query is the next depth's query, rows stay as they are."""
        if self.training and self.dropout.p > 0:
            raise ValueError("recursion is computed in closed form, which has no dropout")
        weights = closed_form.fold(self)
        terms = closed_form.class_terms(weights, self.with_placeholders(rows), self.memory)
        found = []
        for _ in range(depth):
            found.append(closed_form.logits(weights, terms, queries, self.memory)[:, : len(rows)])
            queries = closed_form.calibrated_queries(weights, terms, queries)
        return found

    def _closed_form(self, rows: Tensor, queries: Tensor) -> Tensor:
        weights = closed_form.fold(self)
        terms = closed_form.class_terms(weights, self.with_placeholders(rows), self.memory)
        return closed_form.logits(weights, terms, queries, self.memory)[:, : rows.shape[0]]

    @torch.no_grad()
    def predict(self, rows: Tensor, queries: Tensor) -> Tensor:
        """The logits [Q, C] of evaluation, for repeated predictions, from any number of threads.

        Terms that depend on the rows [C, d] alone are kept for the next call. If classes were taught (rows added
        at the end) or forgotten (rows removed) in the meantime, they are updated in time linear in C; after any other
        change of rows or weights they are rebuilt, as in the first call.
        """
        if rows.shape[0] == 0:
            return queries.new_empty(queries.shape[0], 0)
        if torch.compiler.is_compiling():  # an exported program keeps nothing
            return self._closed_form(rows, queries)
        # self.kept is read once and replaced as a whole: another thread may replace it meanwhile
        before = self.kept
        kept = kept_terms.update(before, self, self.with_placeholders(rows))
        if kept is not before:
            self.kept = kept
        return closed_form.logits(kept.weights, kept.terms, queries, self.memory)[:, : len(rows)]
