"""Change some images of a batch and leave the others: the one place where CPU and CUDA take different roads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def picks_rows(batch: Tensor) -> bool:
    """Whether working on the chosen rows alone is worth it.

    On a CPU it saves most of the arithmetic. On CUDA the number of chosen rows would have to travel to the host first,
    which stalls the queue of kernels, so every row is computed and the unwanted results are thrown away.
    """
    return not batch.is_cuda


def replace(batch: Tensor, chosen: Tensor, change: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """change(*inputs) in the rows where chosen [n] is true, batch [n, ...] in the others.

    change must treat rows independently; every input has n rows.
    """
    if picks_rows(batch):
        rows = chosen.nonzero().flatten()
        if len(rows) == 0:
            return batch
        return batch.index_copy(0, rows, change(*(each.index_select(0, rows) for each in inputs)))
    return torch.where(per_image(chosen, batch.ndim), change(*inputs), batch)


def per_image(values: Tensor, ndim: int = 4) -> Tensor:
    """[n] -> [n, 1, ..., 1] with ndim dimensions, ready to broadcast over images."""
    return values.view(-1, *[1] * (ndim - 1))
