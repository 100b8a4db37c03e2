"""Pseudo-incremental tasks (PIL) of CEC: base classes, and as many new ones that are the same images rotated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fscil.augment import Augment, keys_for
from fscil.benchmark import Session
from fscil.distributed import check_step_size, shard
from fscil.engine.stage import Batch
from fscil.episodes.blend_pool import Embed
from fscil.episodes.checks import check_square
from fscil.episodes.embedding_tasks import embed_turned
from fscil.episodes.new_classes import turn
from fscil.episodes.tasks import class_members, draw_images
from fscil.errors import CannotLearn
from fscil.images import wholes


@dataclass(frozen=True)
class PseudoShape:
    """N base classes and N rotated ones, each with K supports and K' queries."""

    way: int  # N
    shot: int  # K
    queries: int  # K'

    @property
    def images(self) -> int:
        """Base images of a step; each is an item as it is and another one rotated."""
        return self.way * (self.shot + self.queries)


@dataclass(frozen=True)
class PseudoTasks:
    images: Tensor  # indices into the base session, a class's supports first [steps, N, K + K']
    turns: Tensor  # quarter turns that make a new class of each class [steps, N]


def sample_pseudo_tasks(
    members: Tensor, counts: Tensor, shape: PseudoShape, steps: int, generator: torch.Generator
) -> PseudoTasks:
    """`steps` independent tasks; members and counts come from class_members. No image occurs twice in a task."""
    _, images = draw_images(members, counts, shape.way, shape.shot + shape.queries, steps, generator)
    turns = torch.randint(1, 4, (steps, shape.way), device=members.device, generator=generator)
    return PseudoTasks(images, turns)


class PseudoImageTasks:
    """For an encoder that learns."""

    def __init__(self, session: Session, shape: PseudoShape, augmentation: Augment) -> None:
        check_pseudo_tasks(shape, session, encoder_learns=True)
        self.session, self.shape, self.augmentation = session, shape, augmentation
        self.members, self.counts = class_members(session.labels, len(session.classes))

    def sample(self, steps: int, seed: int) -> Batch:
        """images uint8 [steps, items, 3, h, w], of which each process gets its shard.

        Items are pairs of an image and the same one rotated, both augmented alike, in the order of PseudoTasks.images.
        """
        generator = torch.Generator(self.members.device).manual_seed(seed)
        tasks = sample_pseudo_tasks(self.members, self.counts, self.shape, steps, generator)
        images = tasks.images.flatten(1)
        turns = tasks.turns.repeat_interleave(self.shape.shot + self.shape.queries, 1)
        mine = shard(2 * images.shape[1])
        here = slice(mine.start // 2, -(-mine.stop // 2))  # the pairs of this process's items
        keys = keys_for(torch.arange(images.numel()).view(images.shape)[:, here].flatten(), seed)
        plain = self.augmentation(wholes(self.session.images, images[:, here].flatten()), keys)
        plain = plain.unflatten(0, (steps, -1))
        pairs = torch.stack([plain, turn(plain.unsqueeze(2), turns[:, here])], 2).flatten(1, 2)
        return {"images": pairs[:, mine.start - 2 * here.start : mine.stop - 2 * here.start]}


class PseudoEmbeddingTasks:
    """For a fixed encoder: every image is embedded once per angle."""

    def __init__(self, session: Session, shape: PseudoShape, augmentation: Augment, embed: Embed, seed: int) -> None:
        check_pseudo_tasks(shape, session, encoder_learns=False)
        self.shape = shape
        self.members, self.counts = class_members(session.labels, len(session.classes))
        everything = torch.arange(len(session.labels))
        self.embeddings = embed_turned(session, everything, augmentation, embed, seed, range(4))

    def sample(self, steps: int, seed: int) -> Batch:
        """embeddings [steps, items, d], in the order of PseudoImageTasks"""
        generator = torch.Generator(self.members.device).manual_seed(seed)
        tasks = sample_pseudo_tasks(self.members, self.counts, self.shape, steps, generator)
        turns = torch.stack([torch.zeros_like(tasks.turns), tasks.turns], 2)[:, :, None]  # [steps, N, 1, 2]
        return {"embeddings": self.embeddings[tasks.images[..., None], turns].flatten(1, 3)}


def check_pseudo_tasks(shape: PseudoShape, session: Session, *, encoder_learns: bool) -> None:
    """Refuse, in one line and before any training, what the base session cannot provide."""
    if shape.way > len(session.classes):
        raise CannotLearn(
            f"pseudo-incremental tasks draw {shape.way} base classes, but there are {len(session.classes)}; lower "
            "fake_way"
        )
    fewest = int(torch.bincount(session.labels, minlength=len(session.classes)).min())
    if fewest < shape.shot + shape.queries:
        raise CannotLearn(
            f"a pseudo-incremental task needs {shape.shot} shots and {shape.queries} queries of a class, but one base "
            f"class has {fewest} images; lower fake_shot or fake_queries"
        )
    check_square(session, "tasks=pseudo", "set tasks=fake")
    if encoder_learns:
        check_step_size(2 * shape.images, "a pseudo-incremental task", "raise fake_way, fake_shot or fake_queries")
