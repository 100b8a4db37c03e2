"""AutoAugment (Cubuk et al., 2019) for a whole batch at once.

Which variant: the policies are the published ones, all 25 sub-policies, with a random sign wherever the published
operation has one (rotation included), nearest-pixel sampling, and grey 128 beyond the edges of a moved image. The
authors' own CIFAR code fills those places with 0 after normalisation, which is the mean colour of the data; on bytes
grey 128 is nearest to that, and the few-shot field's port of AutoAugment uses it, too. torchvision's
default, black, is a stronger change than the published policy makes. The field's port departs from the policy
elsewhere: it rotates one way only and misses one ImageNet sub-policy; neither is copied here.

Why it is fast: each image goes through two steps of one operation each. For each step the images are sorted by
operation, which the host knows, so that every operation works on a contiguous run: no kernel does unneeded work, and
the host never waits for the GPU. All geometric operations are one lookup with a matrix per image, all pixelwise
operations one lookup in a table per image, and color and sharpness one blend.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from fscil.augment.blends import POORER, blend
from fscil.augment.draws import Draws
from fscil.augment.geometry import GEOMETRIC, move
from fscil.augment.policies import OPERATIONS, draw, policy_table
from fscil.augment.tables import TABLES, apply_table
from fscil.images import to_device

FILL = 128


def auto_augment(images: Tensor, draws: Draws, *, policy: str, fill: int = FILL) -> Tensor:
    """Every image gets a random sub-policy of the named policy."""
    operation, magnitude = draw(policy_table(policy, images.shape[-1]), draws)
    for step in range(2):
        images = apply_operations(images, operation[:, step], magnitude[:, step], fill)
    return images


def apply_operations(images: Tensor, operation: Tensor, magnitude: Tensor, fill: int = FILL) -> Tensor:
    """One operation per image: its number in OPERATIONS (int64, NO_OPERATION for none) and its magnitude.

    Both are [n] and on the host, wherever the images are.
    """
    order = operation.argsort()
    there = to_device(order, images.device)
    changed = _apply_to_runs(images.index_select(0, there), operation[order], magnitude[order], fill)
    return torch.empty_like(changed).index_copy_(0, there, changed)


def _apply_to_runs(images: Tensor, operation: Tensor, magnitude: Tensor, fill: int) -> Tensor:
    """The same for images in the order of their operations."""
    starts = torch.searchsorted(operation, torch.arange(len(OPERATIONS) + 1)).tolist()
    runs = {name: slice(*ends) for name, ends in zip(OPERATIONS, pairwise(starts), strict=True) if ends[0] < ends[1]}
    moved = slice(starts[0], starts[len(GEOMETRIC)])
    tabled = slice(moved.stop, starts[len(GEOMETRIC) + len(TABLES)])
    mixed = slice(tabled.stop, len(images))
    amount = to_device(magnitude, images.device)
    parts = [images[: moved.start]]
    if moved.start < moved.stop:
        parts.append(move(images[moved], operation[moved], magnitude[moved], fill))
    if tables := [TABLES[name](images[run], amount[run]) for name, run in runs.items() if name in TABLES]:
        parts.append(apply_table(images[tabled], torch.cat(tables)))
    if poorer := [POORER[name](images[run]) for name, run in runs.items() if name in POORER]:
        parts.append(blend(images[mixed], torch.cat(poorer), amount[mixed]))
    return torch.cat(parts)
