"""The kinds of fake new classes: what a new class of a fake task is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# uint8 [..., parents, 3, h, w], quarter turns [...] -> uint8 [..., 3, h, w]
Compose = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class NewClasses:
    name: str
    parents: int  # number of base classes per new class, and of base images per image of it
    base_rows_stay: bool  # otherwise the rows of the parents leave the classifier
    turned: bool  # each new class draws its own angle
    compose: Compose


def only_parent(images: Tensor, turns: Tensor) -> Tensor:
    """The image itself."""
    return images.squeeze(-4)


def blend(images: Tensor, turns: Tensor) -> Tensor:
    """The mean of the parents' images."""
    return images.to(torch.float32).mean(-4).round_().to(torch.uint8)


def turn(images: Tensor, turns: Tensor) -> Tensor:
    """The only parent's image (which must be square), rotated."""
    images = images.squeeze(-4)
    turned, turns = images, turns[..., None, None, None]
    for n in (1, 2, 3):  # computes all and selects: indexing with a mask would make the host wait for the GPU
        turned = torch.where(turns == n, images.rot90(n, (-2, -1)), turned)
    return turned


KINDS = {
    kind.name: kind
    for kind in (
        NewClasses("base", parents=1, base_rows_stay=False, turned=False, compose=only_parent),  # the paper's
        NewClasses("mixed", parents=2, base_rows_stay=True, turned=False, compose=blend),
        NewClasses("rotated", parents=1, base_rows_stay=True, turned=True, compose=turn),  # CEC's
    )
}
