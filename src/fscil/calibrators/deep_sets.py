"""Deep sets as a calibrator, which the paper leaves to future work; the form is that of FEAT (Ye et al., 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.calibrators.attention import at_once
from fscil.calibrators.set_function import SetFunction

CLASSES = 256  # at once; with fewer, launching an operation takes longer than running it
MATRICES = 4  # of [queries, classes, d] that are alive at once


class DeepSets(SetFunction):
    """x~ = tau(x + g([x, mean of h(x') over all other x'])), for every x among the classifier rows and the query.

    h and g have one hidden layer. FEAT sums where this takes the mean, since here the number of classes grows. The
    function is permutation-equivariant in the rows.
    """

    permutation_equivariant = True

    def add_layers(self, dim: int, hidden: int) -> None:
        self.h = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        # g([x, m]) = g_out relu(g_own x + g_others m)
        self.g_own, self.g_others = nn.Linear(dim, hidden), nn.Linear(dim, hidden, bias=False)
        self.g_out = nn.Linear(hidden, dim)

    def _logits(self, rows: Tensor, queries: Tensor, drop: nn.Module) -> Tensor:
        """Some classes and queries at a time."""
        C = rows.shape[0]  # not len(rows), which an exported program would keep
        if C == 0:
            return queries.new_empty(queries.shape[0], 0)
        h_rows = self.h(rows)
        total = h_rows.sum(0)
        # g's first layer is linear, so it sees a row's C others, the query among them, in two parts
        of_rows = self.g_own(rows) + self.g_others(total - h_rows) / C  # [C, hidden]
        of_queries = self.g_others(self.h(queries)) / C  # [Q, hidden]
        calibrated = self._calibrate(queries, self.g_own(queries) + self.g_others(total / C), drop)  # [Q, d]

        def some(rows: Tensor, of_rows: Tensor, of_queries: Tensor, calibrated: Tensor) -> Tensor:
            own = self._calibrate(rows, of_rows + of_queries[:, None], drop)  # every query's rows
            return self.compare(own, calibrated)

        if torch.compiler.is_compiling():  # an exported program must not depend on the number of queries
            return some(rows, of_rows, of_queries, calibrated)
        widest = max(rows.shape[1], of_rows.shape[1])
        step = at_once(self.memory, MATRICES * min(C, CLASSES) * widest * rows.element_size())
        classes = list(zip(rows.split(CLASSES), of_rows.split(CLASSES), strict=True))
        asked = zip(of_queries.split(step), calibrated.split(step), strict=True)
        return torch.cat([torch.cat([some(*r, *q) for r in classes], 1) for q in asked])

    def _calibrate(self, x: Tensor, inside: Tensor, drop: nn.Module) -> Tensor:
        """x [..., d] and the argument of g's ReLU [..., hidden] -> x~ [..., d]"""
        return self.tau(x, self.g_out(F.relu(inside)), drop)
