"""What a calibrator is to the rest of the package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn


class Calibrator(nn.Module, ABC):
    """A set function: classifier rows [C, d] and queries [Q, d] -> logits [Q, C], for any number of classes C.

    Built by `build(name, dim, **options)`. Parameters must not depend on C, and each query's logits must not depend on
    the other queries. A subclass that computes in Python loops, or keeps something between calls, must not do so while
    `torch.compiler.is_compiling()`, nor ask for len(rows) there, which would become a constant: models are exported.
    """

    permutation_equivariant: bool  # whether permuting the rows only permutes the logits
    two_inputs: bool = False  # rows and queries are [., 2d]: embeddings, then features as the encoder gives them
    cells: int = 0  # if not 0, rows and queries are [., cells * d]: maps of features before pooling, cell by cell
    independent: bool = False  # a class's logits depend on its own row alone
    row_by_row: bool = False  # it is, and a row's logits cost enough to be computed only once

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """JSON values; with the same name and dim they build the same module, which a saved state then fits."""

    @abstractmethod
    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        """For training: logits with gradients."""

    @torch.no_grad()
    def predict(self, rows: Tensor, queries: Tensor) -> Tensor:
        """For prediction, from any number of threads: never random, and may keep terms of the classes between calls."""
        return self.forward(rows, queries)
