"""No calibration: every row is compared with the query as it is."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from fscil.calibrators.calibrator import Calibrator


class Cosine(Calibrator):
    """scale * cos(row, query); it has no parameters."""

    permutation_equivariant = True

    def __init__(self, dim: int, *, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": self.scale}

    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        return self.scale * F.normalize(queries, dim=-1) @ F.normalize(rows, dim=-1).T
