"""Attention over the classifier rows alone, as CEC's paper has it: a graph whose nodes are classifiers."""

from __future__ import annotations

from torch import Tensor, nn

from fscil.calibrators.attention import attend_in_blocks
from fscil.calibrators.set_function import Attention


class Graph(Attention):
    """W~ = tau(W + W_FC^T sum_k alpha_ik V_k), for every classifier row; the query stays as it is.

    The same layer as the transformer, but rows attend to rows only, so calibrated rows do not depend on the image. No
    positions are encoded: the function is permutation-equivariant in the rows.
    """

    permutation_equivariant = True

    def _logits(self, rows: Tensor, queries: Tensor, drop: nn.Module) -> Tensor:
        if rows.shape[0] == 0:
            return queries.new_empty(queries.shape[0], 0)
        rows, queries = self.to_length(self._calibrate(rows, drop), queries)
        return self.scale * queries @ rows.T

    def _calibrate(self, rows: Tensor, drop: nn.Module) -> Tensor:
        """rows W [C, d] -> W~ [C, d]"""
        tokens = self.W_Q(rows) * self.hidden**-0.5
        attended, _ = attend_in_blocks(tokens, self.W_K(rows), self.W_V(rows), self.memory)
        return self.tau(rows, self.W_FC(attended), drop)
