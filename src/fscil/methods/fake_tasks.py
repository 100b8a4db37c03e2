"""What meta-training learns from: the images of fake tasks, or, for a fixed encoder, their embeddings.

A step's items stand in one row: the supports, then for each phase the queries of old classes and of new ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fscil.augment import Augment, keys_for
from fscil.benchmark import Session
from fscil.distributed import check_step_size, map_shards, shard
from fscil.engine.stage import Batch
from fscil.episodes import FakeTasks, TaskShape, class_members, sample_fake_tasks
from fscil.errors import UserError
from fscil.images import in_parts


def check_tasks(shape: TaskShape, counts: Tensor, encoder_learns: bool) -> None:
    """Refuse shapes that the base session cannot give; counts: images of each base class."""
    shape.check(counts)
    if encoder_learns:
        check_step_size(sum(sizes(shape, len(counts))), "a fake task", "raise fake_way, fake_shot or fake_queries")
    # h images of each parent make h * h different blends, so the root is enough
    half, needed = int(counts.min()) // 2, max(shape.queries, math.isqrt(shape.shot + shape.queries - 1) + 1, 2)
    if shape.mixed and not encoder_learns and half < needed:
        raise UserError(
            f"blended fake classes take half of a base class's images, here {half}, but {shape.shot} shots and "
            f"{shape.queries} queries need {needed}; set fake_classes=base or lower fake_shot and fake_queries"
        )


Embed = Callable[[Tensor], Tensor]  # uint8 images [n, 3, h, w] -> embeddings [n, d], all of it in this process

CHUNK = 2048  # images that are augmented and embedded at once, so that memory does not grow with the base session


def sizes(shape: TaskShape, base_classes: int) -> list[int]:
    """How many items of a step are supports, old queries 1, new queries 1, old queries 2, ..."""
    found = [shape.phases * shape.way * shape.shot]
    for c in range(1, shape.phases + 1):
        found += [shape.old(base_classes) * shape.queries, c * shape.way * shape.queries]
    return found


def images_of_step(shape: TaskShape, base_classes: int) -> int:
    """How many images a step takes; a blend takes all its parents."""
    supports, *queries = sizes(shape, base_classes)
    return shape.parents * (supports + sum(queries[1::2])) + sum(queries[::2])


def query_labels(shape: TaskShape, base_classes: int, device: torch.device) -> list[Tensor]:
    """Per phase, the classifier row that each query belongs to: rows are in the order of the queries' classes."""
    old = shape.old(base_classes)
    rows = [torch.arange(old + c * shape.way, device=device) for c in range(1, shape.phases + 1)]
    return [r.repeat_interleave(shape.queries) for r in rows]


def blend(images: Tensor) -> Tensor:
    """uint8 [..., parents, 3, h, w] -> the mean of the parents' images"""
    return images.to(torch.float32).mean(-4).round_().to(torch.uint8)


def task_images(tasks: FakeTasks, session: Session, augmentation: Augment, seed: int) -> Batch:
    """Augmented images of every step, uint8 [steps, items, 3, h, w]; of several processes each gets its share of items.

    The same image may turn up in several steps, each time augmented differently: keys count appearances.
    """
    parts = [tasks.supports.flatten(1, 3)]  # each [steps, items, parents]
    for old, new in zip(tasks.old_queries, tasks.new_queries, strict=True):
        parts += [old.flatten(1)[:, :, None], new.flatten(1, 2)]
    mine = shard(sum(part.shape[1] for part in parts))
    pictures, first, taken = [], 0, 0
    for part in parts:
        here = slice(max(mine.start - first, 0), max(mine.stop - first, 0))
        places = torch.arange(taken, taken + part.numel()).view(part.shape)[:, here]
        first, taken = first + part.shape[1], taken + part.numel()
        if places.numel() > 0:
            index = part[:, here]
            each = augmentation(session.images[index.flatten()], keys_for(places.flatten(), seed))
            each = each.unflatten(0, index.shape)
            pictures.append(blend(each) if index.shape[2] > 1 else each[:, :, 0])
    return {"images": torch.cat(pictures, 1), "old_classes": tasks.old_classes}


class ImageTasks:
    """Fake tasks as images, for an encoder that learns."""

    def __init__(self, session: Session, shape: TaskShape, augmentation: Augment) -> None:
        self.session, self.shape, self.augmentation = session, shape, augmentation
        self.members, self.counts = class_members(session.labels, len(session.classes))
        shape.check(self.counts)

    def sample(self, steps: int, seed: int) -> Batch:
        generator = torch.Generator(self.members.device).manual_seed(seed)
        tasks = sample_fake_tasks(self.members, self.counts, self.shape, steps, generator)
        return task_images(tasks, self.session, self.augmentation, seed)


class EmbeddingTasks:
    """Fake tasks as embeddings that were computed once, for an encoder that stays fixed.

    Blends cannot be made of embeddings, so a pool of blended classes is encoded in advance. Their images come from one
    half of each class and the queries of old classes from the other, so that no query is a support.
    """

    POOL, BLENDS = 240, 16  # blended classes in the pool, and images of each

    def __init__(self, session: Session, shape: TaskShape, augmentation: Augment, embed: Embed, seed: int) -> None:
        self.shape = shape
        members, self.counts = class_members(session.labels, len(session.classes))
        check_tasks(shape, self.counts, encoder_learns=False)
        if shape.mixed:
            half = self.counts // 2  # [classes]
            slots = torch.arange(int(half.max()), device=half.device)
            self.pool = self._encode_pool(session, members, half, augmentation, embed, seed)
            members = members.gather(1, half[:, None] + slots)
            self.absent = slots >= half[:, None]  # of a smaller class than the largest
        embedded, self.members = members.unique(return_inverse=True)  # the images that are asked for
        embedded = embedded.cpu()
        keys = keys_for(embedded, seed)

        def embed_share(mine: slice) -> Tensor:
            parts = zip(in_parts(session.images, embedded[mine], CHUNK), keys[mine].split(CHUNK), strict=True)
            return torch.cat([embed(augmentation(part, its_keys)) for part, its_keys in parts])

        self.embeddings = map_shards(len(keys), embed_share)

    def _encode_pool(
        self, session: Session, members: Tensor, half: Tensor, augmentation: Augment, embed: Embed, seed: int
    ) -> Tensor:
        """Embeddings of blends [pool, blends, d]: distinct pairs of classes, and of each distinct pairs of images.

        They are made of the first half [classes] of each class's members.
        """
        shape, device = self.shape, members.device
        generator = torch.Generator(device).manual_seed(seed)
        pairs = torch.combinations(torch.arange(len(members), device=device))
        order = torch.randperm(len(pairs), device=device, generator=generator)
        pairs = pairs[order[: max(self.POOL, shape.phases * shape.way)]]
        pool, blends = len(pairs), min(int(half.min()) ** 2, max(self.BLENDS, shape.shot + 2 * shape.queries))
        # every image in turn, in random order; when all have been, each beside another partner
        ranks = torch.rand(pool, int(half.max()), 2, device=device, generator=generator)
        absent = torch.arange(ranks.shape[1], device=device)[:, None] >= half[pairs][:, None, :]
        orders = ranks.masked_fill(absent, 2.0).argsort(1)
        i, (first, second) = torch.arange(blends, device=device), half[pairs][:, :, None].unbind(1)
        places = torch.stack([i % first, (i + i // torch.lcm(first, second)) % second], 2)
        index = members[pairs[:, None, :], orders.gather(1, places)].flatten(0, 1)  # [pool * blends, parents]
        keys = keys_for(torch.arange(index.numel()), seed + 1).view_as(index)

        def encode(part: Tensor, its_keys: Tensor) -> Tensor:
            pictures = augmentation(session.images[part.flatten()], its_keys.flatten())
            return embed(blend(pictures.unflatten(0, part.shape)))

        def encode_share(mine: slice) -> Tensor:
            parts = zip(index[mine].split(CHUNK), keys[mine].split(CHUNK), strict=True)
            return torch.cat([encode(*both) for both in parts])

        return map_shards(len(index), encode_share).unflatten(0, (pool, blends))

    def sample(self, steps: int, seed: int) -> Batch:
        generator = torch.Generator(self.members.device).manual_seed(seed)
        if not self.shape.mixed:
            tasks = sample_fake_tasks(self.members, self.counts, self.shape, steps, generator)
            parts = [tasks.supports]
            for old, new in zip(tasks.old_queries, tasks.new_queries, strict=True):
                parts += [old, new]
            index = torch.cat([part.flatten(1) for part in parts], 1)
            return {"embeddings": self.embeddings[index], "old_classes": tasks.old_classes}
        return self._sample_mixed(steps, generator)

    def _sample_mixed(self, steps: int, generator: torch.Generator) -> Batch:
        C, N, K, Kq = self.shape.phases, self.shape.way, self.shape.shot, self.shape.queries
        device = self.members.device
        pool, blends, _ = self.pool.shape
        classes, most = self.members.shape
        new = torch.rand(steps, pool, device=device, generator=generator).argsort(1)[:, : C * N]
        ranking = torch.rand(steps, C * N, blends, device=device, generator=generator).argsort(2)

        def new_items(which: slice, places: slice) -> Tensor:
            return self.pool[new[:, which, None], ranking[:, which, places]].flatten(1, 2)

        parts = [new_items(slice(None), slice(0, K))]
        for c in range(1, C + 1):
            ranks = torch.rand(steps, classes, most, device=device, generator=generator)
            place = ranks.masked_fill(self.absent, -1.0).topk(Kq, dim=2).indices
            asked = self.members[torch.arange(classes, device=device)[:, None], place]
            first = K + (c - 1) * Kq if K + c * Kq <= blends else K
            parts += [self.embeddings[asked].flatten(1, 2), new_items(slice(0, c * N), slice(first, first + Kq))]
        old = torch.arange(classes, device=device).expand(steps, -1)
        return {"embeddings": torch.cat(parts, 1), "old_classes": old}
