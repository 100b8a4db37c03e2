"""How much a calibrator depends on the order of the classes."""

from __future__ import annotations

import torch
from torch import Tensor

from fscil.calibrators.calibrator import Calibrator


def changed_by_order(calibrator: Calibrator, rows: Tensor, queries: Tensor, orders: int = 10, seed: int = 1) -> float:
    """The share of answers to queries [Q, d] that change if rows [C, d] come in another order; mean over random ones.

    A permutation-equivariant calibrator has none, but for ties and rounding.
    """
    generator = torch.Generator().manual_seed(seed)
    answers = calibrator.predict(rows, queries).argmax(1)
    shares = []
    for _ in range(orders):
        order = torch.randperm(len(rows), generator=generator).to(rows.device)
        shares.append((order[calibrator.predict(rows[order], queries).argmax(1)] != answers).float().mean())
    return float(torch.stack(shares).mean())
