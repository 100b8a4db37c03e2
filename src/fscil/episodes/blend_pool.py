"""A pool of blended classes, embedded in advance, since blends cannot be made from embeddings."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fscil.augment import Augment, keys_for
from fscil.benchmark import Session
from fscil.distributed import map_shards
from fscil.episodes.tasks import TaskShape
from fscil.images import wholes

Embed = Callable[[Tensor], Tensor]  # uint8 images [n, 3, h, w] -> embeddings [n, d], all computed in this process

CHUNK = 2048  # images augmented and embedded at once, so that memory does not grow with the base session
POOL, BLENDS = 240, 16  # blended classes in the pool, and images of each


def encode_pool(
    session: Session, members: Tensor, half: Tensor, shape: TaskShape, augmentation: Augment, embed: Embed, seed: int
) -> Tensor:
    """Embeddings of blends [pool, blends, d]: distinct pairs of classes, and for each distinct pairs of images.

    They are made from the first `half` [classes] of each class's members.
    """
    device = members.device
    generator = torch.Generator(device).manual_seed(seed)
    pairs = torch.combinations(torch.arange(len(members), device=device))
    order = torch.randperm(len(pairs), device=device, generator=generator)
    pairs = pairs[order[: max(POOL, shape.phases * shape.way)]]
    pool, blends = len(pairs), min(int(half.min()) ** 2, max(BLENDS, shape.shot + 2 * shape.queries))
    # cycle through the images of both classes in random order; once all pairs of that cycle are used, shift one class
    ranks = torch.rand(pool, int(half.max()), 2, device=device, generator=generator)
    absent = torch.arange(ranks.shape[1], device=device)[:, None] >= half[pairs][:, None, :]
    orders = ranks.masked_fill(absent, 2.0).argsort(1)
    i, (first, second) = torch.arange(blends, device=device), half[pairs][:, :, None].unbind(1)
    places = torch.stack([i % first, (i + i // torch.lcm(first, second)) % second], 2)
    index = members[pairs[:, None, :], orders.gather(1, places)].flatten(0, 1)  # [pool * blends, parents]
    keys = keys_for(torch.arange(index.numel()), seed + 1).view_as(index)

    def encode(part: Tensor, its_keys: Tensor) -> Tensor:
        augmented = augmentation(wholes(session.images, part.flatten()), its_keys.flatten()).unflatten(0, part.shape)
        return embed(shape.kind.compose(augmented, torch.zeros(len(part), dtype=torch.long, device=device)))

    def encode_share(mine: slice) -> Tensor:
        chunks = zip(index[mine].split(CHUNK), keys[mine].split(CHUNK), strict=True)
        return torch.cat([encode(*chunk) for chunk in chunks])

    return map_shards(len(index), encode_share).unflatten(0, (pool, blends))
