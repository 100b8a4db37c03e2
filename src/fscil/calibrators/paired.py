"""A calibrator of two numbers, not in the paper: trained rows choose among base classes, and what all rows share goes.

Chosen by experiment: results/tuning/calibrator.md has what else was tried, the transformer included.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.calibrators.calibrator import Calibrator


class Paired(Calibrator):
    """Cosines to class means and prototypes; with trust = common = 0, nothing else.

    Rows [C, 2d] are pairs of a class mean or prototype and a trained row, which new classes do not have (zeros).
    Queries [Q, 2d] are pairs of an embedding and features as the encoder gives them.

    Trained rows tell base classes apart better than class means do, but are no measure of whether an image belongs to a
    base class at all: beside prototypes they would win or lose by their scale. So they decide which base class is best,
    by `trust`, and class means decide what its score is. `common` is how much of the rows' mean is taken from a query.
    """

    permutation_equivariant = True
    two_inputs = True

    def __init__(self, dim: int, *, scale: float = 1.0, trust: float = 1.0, common: float = 0.0) -> None:
        super().__init__()
        self.scale, self.trust, self.common = scale, trust, common

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": self.scale, "trust": self.trust, "common": self.common}

    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        (means, trained), (embeddings, features) = rows.chunk(2, 1), queries.chunk(2, 1)
        is_base = trained.square().sum(1) > 0
        means = F.normalize(means, dim=1)
        scores = F.normalize(F.normalize(embeddings, dim=1) - self.common * means.mean(0), dim=1) @ means.T
        informed = scores + self.trust * features @ F.normalize(trained, dim=1).T
        shift = best_of(scores, is_base) - best_of(informed, is_base)
        return self.scale * torch.where(is_base, informed + shift, scores)


def best_of(scores: Tensor, which: Tensor) -> Tensor:
    """[Q, C], bool [C] -> [Q, 1]; -inf where there is none"""
    return F.pad(scores.masked_fill(~which, -torch.inf), (0, 1), value=-torch.inf).amax(1, keepdim=True)
