"""Turned images as classes of their own: a harder task in pre-training, from which a wide encoder learns more.

Every base class gets three more: its images turned by 90, 180 and 270 degrees. They exist in pre-training only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fscil import distributed
from fscil.engine.stage import Batch
from fscil.errors import UserError
from fscil.images import to_device
from fscil.methods.training import Batches
from fscil.model import Model

QUARTERS = 3  # turns of an image that are not the image itself


@dataclass(frozen=True)
class TurnedBatches(Batches):
    """Batches in which a share of the images is turned: an image of class y, turned k times, is of class y + k B."""

    share: float = 0.0

    def prepare(self, segment: int) -> Batch:
        batch = super().prepare(segment)
        if not self.share:
            return batch
        images, labels = batch["images"], batch["labels"]
        k = turns(self.step_images, self.share)
        mine = k[distributed.shard(len(k))]
        for quarters in range(1, QUARTERS + 1):
            here = to_device(torch.nonzero(mine == quarters).flatten(), images.device)
            images[:, here] = images[:, here].rot90(quarters, (-2, -1))
        return {"images": images, "labels": labels + to_device(k, labels.device) * len(self.session.classes)}


def check_turned(images: int, share: float) -> None:
    """Refuse steps in which a turn, or an upright image, would never occur."""
    turned = int((turns(images, share) > 0).sum())
    if share and not QUARTERS <= turned < images:
        raise UserError(
            f"turned={share:g} turns {turned} of a step's {images} images, but at least {QUARTERS} must be turned "
            "and one upright; change batch or turned"
        )


def turns(images: int, share: float) -> Tensor:
    """How often each of a step's images is turned. Steps are shuffled, so that their last images may be those."""
    k = torch.zeros(images, dtype=torch.long)
    upright = round(images * (1 - share))
    k[upright:] = torch.arange(images - upright) % QUARTERS + 1
    return k


@contextmanager
def rows_for_turned(model: Model) -> Iterator[None]:
    """The model has rows for turned classes within the block; they start as all rows do."""
    B, d = model.rows.shape
    model.add_rows(nn.init.kaiming_uniform_(torch.empty(QUARTERS * B, d), a=5**0.5))
    try:
        yield
    finally:
        model.remove_rows(range(B, len(model.rows)))
