"""A bidirectional LSTM as a calibrator, which the paper leaves to future work; the form is that of FEAT (Ye et al.)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fscil.calibrators.attention import at_once
from fscil.calibrators.set_function import SetFunction
from fscil.errors import UserError

MATRICES = 9  # of [queries, classes, d] that are alive at once: tokens, an LSTM's four gates, states, their sum


class BiLSTM(SetFunction):
    """x~ = tau(x + f(x) + b(x)), for every x of the sequence [classifier rows, query].

    f is the state of an LSTM that read the sequence up to x, b that of one that read it from its end. Being added to x,
    states have its size. The query comes last, so that b carries it to every row.

    A sequence is no set: logits depend on the order in which classes arrived. `changed_by_order` measures how much.
    """

    permutation_equivariant = False

    def add_layers(self, dim: int, hidden: int) -> None:
        if hidden != dim:
            raise UserError(f"a bi-lstm's states have the size of embeddings, {dim}; leave out hidden={hidden}")
        self.f = nn.LSTM(dim, dim, batch_first=True)
        self.b = nn.LSTM(dim, dim, batch_first=True)

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
            calibrated_rows = self.tau(rows, f_rows + b[:, 1:].flip(1), drop)
            calibrated_query = self.tau(x, f_query[:, 0] + b[:, 0], drop)
            return self.compare(calibrated_rows, calibrated_query)

        if exported:  # an exported program must not depend on the number of queries
            return some(queries)
        step = at_once(self.memory, MATRICES * rows.numel() * rows.element_size())
        return torch.cat([some(x) for x in queries.split(step)])
