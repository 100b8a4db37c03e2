"""Change some images of a batch and leave the others.

What is drawn for the images is drawn on the host (draws.py), so the host knows which images are chosen without asking
a GPU: no kernel works on an image in vain, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from fscil.images import sent


def replace(batch: Tensor, chosen: Tensor, change: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """change(*inputs) in the rows where chosen (bool [n], on the host) is true, batch [n, ...] in the others.

    change must treat rows independently; every input has n rows, on the host or where the batch is.
    """
    rows = chosen.nonzero().flatten()
    if len(rows) == 0:
        return batch
    there = sent(rows, batch.device)
    changed = change(*(each.index_select(0, there if each.device == batch.device else rows) for each in inputs))
    return batch.index_copy(0, there, changed)


def per_image(values: Tensor, ndim: int = 4) -> Tensor:
    """[n] -> [n, 1, ..., 1] with ndim dimensions, ready to broadcast over images."""
    return values.view(-1, *[1] * (ndim - 1))
