"""Inference through virtual prototypes: FACT (Zhou et al., CVPR 2022).

P_v are prototypes that base training reserved for classes to come. A query may reach class i directly, or by way of a
virtual prototype that lies near both.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.calibrators.calibrator import Calibrator


class Virtual(Calibrator):
    """log of (1 - eta) p(i | q) + eta sum_v p(v | q) p(i | v), where each p is a softmax of scale * cosine.

    p(i | .) is over the rows w_i, p(v | .) over the virtual prototypes p_v, which are parameters.
    """

    permutation_equivariant = True

    def __init__(self, dim: int, *, virtual: int = 1, scale: float = 1.0, eta: float = 0.1) -> None:
        super().__init__()
        self.scale, self.eta = scale, eta
        # in float64, which hides what the number of threads changes in the last digits: training would amplify it
        start = nn.init.orthogonal_(torch.empty(virtual, dim, dtype=torch.float64))
        self.prototypes = nn.Parameter(start.to(torch.get_default_dtype()))

    @property
    def options(self) -> dict[str, Any]:
        return {"virtual": len(self.prototypes), "scale": self.scale, "eta": self.eta}

    def cosines(self, a: Tensor, b: Tensor) -> Tensor:
        """scale * cos: [n, d], [m, d] -> [n, m]"""
        return self.scale * F.normalize(a, dim=1) @ F.normalize(b, dim=1).T

    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        direct = self.cosines(queries, rows).log_softmax(1)
        if self.eta == 0:
            return direct
        to_virtual = self.cosines(queries, self.prototypes).softmax(1)
        from_virtual = self.cosines(self.prototypes, rows).softmax(1)
        indirect = (to_virtual @ from_virtual).clamp(min=torch.finfo(rows.dtype).tiny).log()
        if self.eta == 1:
            return indirect.log_softmax(1)
        both = torch.logaddexp(math.log(1 - self.eta) + direct, math.log(self.eta) + indirect)
        return both.log_softmax(1)  # they sum to 1 but for rounding; an only class has exactly 0
