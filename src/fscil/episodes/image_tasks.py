"""Fake tasks as images, for an encoder that learns."""

from __future__ import annotations

import torch

from fscil.augment import Augment, keys_for
from fscil.benchmark import Session
from fscil.distributed import shard
from fscil.engine.stage import Batch
from fscil.episodes.checks import check_tasks
from fscil.episodes.layout import parts
from fscil.episodes.tasks import FakeTasks, TaskShape, class_members, sample_fake_tasks
from fscil.images import wholes


class ImageTasks:
    def __init__(self, session: Session, shape: TaskShape, augmentation: Augment) -> None:
        check_tasks(shape, session, encoder_learns=True)
        self.session, self.shape, self.augmentation = session, shape, augmentation
        self.members, self.counts = class_members(session.labels, len(session.classes))

    def sample(self, steps: int, seed: int) -> Batch:
        """images uint8 [steps, items, 3, h, w], of which each process gets its shard, and old_classes [steps, old]"""
        generator = torch.Generator(self.members.device).manual_seed(seed)
        tasks = sample_fake_tasks(self.members, self.counts, self.shape, steps, generator)
        return task_images(tasks, self.shape, self.session, self.augmentation, seed)


def task_images(tasks: FakeTasks, shape: TaskShape, session: Session, augmentation: Augment, seed: int) -> Batch:
    """Augmented images of every step; each process computes only its shard of a step's items.

    The same image may occur in several steps, each time augmented differently: keys count occurrences over the items
    of all processes.
    """
    everything = parts(tasks, shape)
    mine = shard(sum(part.images.shape[1] for part in everything))
    pictures, items, appearances = [], 0, 0
    for part in everything:
        here = slice(max(mine.start - items, 0), max(mine.stop - items, 0))
        number = torch.arange(appearances, appearances + part.images.numel()).view(part.images.shape)[:, here]
        items, appearances = items + part.images.shape[1], appearances + part.images.numel()
        if number.numel() > 0:
            index = part.images[:, here]
            each = augmentation(wholes(session.images, index.flatten()), keys_for(number.flatten(), seed))
            pictures.append(part.compose(each.unflatten(0, index.shape), part.turns[:, here]))
    return {"images": torch.cat(pictures, 1), "old_classes": tasks.old_classes}
