"""Photos to embeddings, each in the same way whatever comes with it: what is taught must not depend on batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fscil.errors import UserError
from fscil.learner.changes import Sample
from fscil.model import Model
from fscil.pictures import Decoded

SMALL = 64  # pixels a side; of larger images one at a time, with its mirror image, takes hardly longer than several
AT_ONCE = 5
Seen = Callable[[int], object]  # is told how many photos are done


def embed_alike(model: Model, pixels: Tensor, seen: Seen | None = None) -> NDArray[np.float32]:
    """uint8 [n, 3, h, w] -> [n, d], bit for bit the same in whatever company. seen: is told how many are done.

    Rounding depends on how many images an encoder sees together, so that is always the same number: small images are
    filled up with copies to five, others go one by one.
    """
    size = AT_ONCE if model.spec.input_size <= SMALL else 1
    parts: list[Tensor] = []
    for part in pixels.split(size):
        if seen is not None:
            seen(len(parts) * size)
        filled = torch.cat([part, part[:1].expand(size - len(part), -1, -1, -1)])
        parts.append(_embed(model, filled)[: len(part)])
    found = torch.cat(parts) if parts else model.rows.new_empty(0, model.row_size)
    return found.float().cpu().numpy()


@torch.no_grad()
def _embed(model: Model, images: Tensor) -> Tensor:
    """Like embed_here, but all views of these few images go through the encoder together, which is quicker."""
    if model.calibrator.cells:
        return model.embed_here(images)
    views = model.views(images)
    return model.join_views(model.encoder.embed_here(torch.cat(views)).chunk(len(views)))


def samples_of(model: Model, pictures: Sequence[Decoded], seen: Seen | None = None) -> list[Sample]:
    """Pictures as what a store keeps of them; where rows are pairs, new classes have no trained row."""
    if not pictures:
        return []
    embeddings = embed_alike(model, torch.stack([each.pixels for each in pictures]), seen)
    for embedding, picture in zip(embeddings, pictures, strict=True):
        if not np.isfinite(embedding).all() or not embedding.any():
            raise UserError(f"{picture.file or 'an image'} gives no finite embedding; leave it out")
    return [Sample(row, picture.digest, picture.file) for row, picture in zip(embeddings, pictures, strict=True)]
