"""AutoAugment (Cubuk et al., 2019) for a whole batch at once.

Which variant: the policies are the published ones, all 25 sub-policies, with a random sign wherever the published
operation has one (rotation included), nearest-pixel sampling, and grey 128 beyond the edges of a moved image. The
authors' own CIFAR code fills those places with 0 after normalisation, which is the mean colour of the data; on bytes
grey 128 is nearest to that, and it is what the few-shot field's port of AutoAugment fills with too. torchvision's
default, black, is a stronger change than the published policy makes. The field's port departs from the policy
elsewhere: it rotates one way only and misses one ImageNet sub-policy; neither is copied here.

How it is fast: an image meets two steps of one operation each. In a step all geometric operations are one lookup with
a matrix per image, all pixelwise operations one lookup in a table per image, and color and sharpness one blend.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from fscil.augment.blends import POORER, blend
from fscil.augment.draws import Draws
from fscil.augment.geometry import GEOMETRIC, move
from fscil.augment.policies import OPERATIONS, draw, policy_table
from fscil.augment.select import replace
from fscil.augment.tables import TABLES, apply_table
from fscil.images import sent

FILL = 128
FIRST_TABLE = len(GEOMETRIC)
FIRST_BLEND = FIRST_TABLE + len(TABLES)


def auto_augment(images: Tensor, draws: Draws, *, policy: str, fill: int = FILL) -> Tensor:
    """Every image gets a random sub-policy of the named policy."""
    operation, magnitude = draw(policy_table(policy, images.shape[-1]), draws)
    magnitude = sent(magnitude, images.device)
    for step in range(2):
        images = apply_operations(images, operation[:, step], magnitude[:, step], fill)
    return images


def apply_operations(images: Tensor, operation: Tensor, magnitude: Tensor, fill: int = FILL) -> Tensor:
    """One operation per image: its number in OPERATIONS and its magnitude.

    The numbers (int64 [n], NO_OPERATION for none) lie on the host, the magnitudes [n] where the images are.
    """
    geometric = (operation >= 0) & (operation < FIRST_TABLE)
    tabled = (operation >= FIRST_TABLE) & (operation < FIRST_BLEND)
    images = replace(images, geometric, partial(move, fill=fill), images, operation, magnitude)
    images = replace(images, tabled, _look_up, images, operation, magnitude)
    return replace(images, operation >= FIRST_BLEND, _mix, images, operation, magnitude)


def _look_up(images: Tensor, operation: Tensor, magnitude: Tensor) -> Tensor:
    table = images.new_zeros(len(images), 3, 256)
    for name, table_of in TABLES.items():
        table = replace(table, operation == OPERATIONS.index(name), table_of, images, magnitude)
    return apply_table(images, table)


def _mix(images: Tensor, operation: Tensor, magnitude: Tensor) -> Tensor:
    poorer = torch.zeros_like(images, dtype=torch.float32)
    for name, poorer_of in POORER.items():
        poorer = replace(poorer, operation == OPERATIONS.index(name), poorer_of, images)
    return blend(images, poorer, magnitude)
