"""No calibration: every row is compared with the query as it is, by cosine or nearly so."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.calibrators.calibrator import Calibrator


class Cosine(Calibrator):
    """scale * cos(row, query); it has no parameters.

    A learner may set `metric` [d, d], by which rows and queries are multiplied first; it is no part of the state.
    """

    permutation_equivariant = True
    independent = True
    metric: Tensor | None

    def __init__(self, dim: int, *, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.register_buffer("metric", None, persistent=False)

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": self.scale}

    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        if self.metric is not None:
            rows, queries = rows @ self.metric, queries @ self.metric
        return self.scale * F.normalize(queries, dim=-1) @ F.normalize(rows, dim=-1).T


class Linear(Calibrator):
    """row . query / |query|: a cosine times the row's length. It has no parameters."""

    permutation_equivariant = True
    independent = True

    def __init__(self, dim: int) -> None:
        super().__init__()

    @property
    def options(self) -> dict[str, Any]:
        return {}

    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        return F.normalize(queries, dim=-1) @ rows.T


class LearnedScale(Calibrator):
    """eta * cos(row, query), where eta is a parameter that starts at `scale` (LUCIR's Eq. 4)."""

    permutation_equivariant = True
    independent = True

    def __init__(self, dim: int, *, scale: float = 1.0) -> None:
        super().__init__()
        self.start = scale
        self.eta = nn.Parameter(torch.tensor(float(scale)))

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": self.start}

    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        return self.eta * F.normalize(queries, dim=-1) @ F.normalize(rows, dim=-1).T
