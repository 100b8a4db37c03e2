"""Fake tasks as embeddings that are computed once, for a fixed encoder."""

from __future__ import annotations

import torch
from torch import Tensor

from fscil.augment import Augment, keys_for
from fscil.benchmark import Session
from fscil.distributed import map_shards
from fscil.engine.stage import Batch
from fscil.episodes.blend_pool import CHUNK, Embed, encode_pool
from fscil.episodes.checks import check_tasks
from fscil.episodes.layout import parts
from fscil.episodes.tasks import TaskShape, class_members, sample_fake_tasks
from fscil.images import wholes_in_parts


class EmbeddingTasks:
    """Every image is embedded once, or once per angle if new classes are rotated ones.

    There are too many blends for that, so a pool of blended classes is embedded instead. Their images come from one
    half of each class and the queries of old classes from the other, so no query is also a support.
    """

    def __init__(self, session: Session, shape: TaskShape, augmentation: Augment, embed: Embed, seed: int) -> None:
        check_tasks(shape, session, encoder_learns=False)
        self.shape = shape
        members, self.counts = class_members(session.labels, len(session.classes))
        if shape.kind.parents > 1:
            half = self.counts // 2  # [classes]
            slots = torch.arange(int(half.max()), device=half.device)
            self.pool = encode_pool(session, members, half, shape, augmentation, embed, seed)
            members = members.gather(1, half[:, None] + slots)
            self.absent = slots >= half[:, None]  # padding of classes smaller than the largest
        images, self.members = members.unique(return_inverse=True)  # members now index the embeddings
        angles = range(4) if shape.kind.turned else range(1)
        self.embeddings = embed_turned(session, images.cpu(), augmentation, embed, seed, angles)

    def sample(self, steps: int, seed: int) -> Batch:
        """embeddings [steps, items, d] and old_classes [steps, old]"""
        generator = torch.Generator(self.members.device).manual_seed(seed)
        if self.shape.kind.parents > 1:
            return self._sample_from_pool(steps, generator)
        tasks = sample_fake_tasks(self.members, self.counts, self.shape, steps, generator)
        everything = parts(tasks, self.shape)
        images = torch.cat([part.images[:, :, 0] for part in everything], 1)
        turns = torch.cat([part.turns for part in everything], 1)
        return {"embeddings": self.embeddings[images, turns], "old_classes": tasks.old_classes}

    def _sample_from_pool(self, steps: int, generator: torch.Generator) -> Batch:
        C, N, K, Kq = self.shape.phases, self.shape.way, self.shape.shot, self.shape.queries
        device = self.members.device
        pool, blends, _ = self.pool.shape
        classes, most = self.members.shape
        new = torch.rand(steps, pool, device=device, generator=generator).argsort(1)[:, : C * N]
        ranking = torch.rand(steps, C * N, blends, device=device, generator=generator).argsort(2)

        def new_items(which: slice, places: slice) -> Tensor:
            return self.pool[new[:, which, None], ranking[:, which, places]].flatten(1, 2)

        found = [new_items(slice(None), slice(0, K))]
        for c in range(1, C + 1):
            ranks = torch.rand(steps, classes, most, device=device, generator=generator)
            place = ranks.masked_fill(self.absent, -1.0).topk(Kq, dim=2).indices
            asked = self.members[torch.arange(classes, device=device)[:, None], place]
            first = K + (c - 1) * Kq if K + c * Kq <= blends else K
            found += [self.embeddings[asked, 0].flatten(1, 2), new_items(slice(0, c * N), slice(first, first + Kq))]
        old = torch.arange(classes, device=device).expand(steps, -1)
        return {"embeddings": torch.cat(found, 1), "old_classes": old}


def embed_turned(
    session: Session, images: Tensor, augmentation: Augment, embed: Embed, seed: int, angles: range
) -> Tensor:
    """The session's images of these indices [n], augmented once and turned by each angle: embeddings [n, angles, d]"""
    keys = keys_for(images, seed)

    def embed_augmented(augmented: Tensor) -> Tensor:
        """[n, 3, h, w] -> [n, angles, d]"""
        return torch.stack([embed(augmented.rot90(angle, (-2, -1))) for angle in angles], 1)

    def embed_share(mine: slice) -> Tensor:
        chunks = zip(wholes_in_parts(session.images, images[mine], CHUNK), keys[mine].split(CHUNK), strict=True)
        return torch.cat([embed_augmented(augmentation(chunk, its_keys)) for chunk, its_keys in chunks])

    return map_shards(len(keys), embed_share)
