"""From images to gradient steps: what pre-training, fine-tuning, replay and meta-training share.

A step's images are sharded over the ranks: each computes `forward` on its shard, the outputs are all-gathered, and
every rank computes the same loss of the whole step. Authors of a `forward` and a `loss` need not know about ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fscil import augment, distributed
from fscil.benchmark import Session
from fscil.engine import Engine, Stage, seed_for
from fscil.engine.schedule import Schedule
from fscil.engine.stage import Batch, ParameterGroup, steps_at_once
from fscil.errors import CannotLearn, UserError
from fscil.images import prefetch, to_device, wholes
from fscil.naming import quotable

MOST_STEPS = 10_000_000  # of a stage, whose whole schedule is kept in memory

Forward = Callable[[Tensor], Any]  # uint8 images [n, 3, h, w] -> a tensor [n, ...], or a tuple of them
Loss = Callable[[Any, Batch], Tensor]  # (outputs of the whole step, the rest of its batch) -> a scalar


class TrainingData(Protocol):
    """The data that training steps learn from, split into segments that are prepared together."""

    @property
    def segments(self) -> int: ...
    @property
    def segment_steps(self) -> int: ...
    @property
    def step_images(self) -> int: ...  # of a whole step, over all ranks

    def prepare(self, segment: int) -> Batch:
        """Tensors [steps, ...]: "images", this rank's shard, or all "embeddings" if nothing is left to encode."""
        ...


@dataclass(frozen=True)
class SGD:
    momentum: float = 0.9
    weight_decay: float = 5e-4
    nesterov: bool = True


def train(
    engine: Engine,
    name: str,
    module: nn.Module,
    data: TrainingData,
    *,
    forward: Forward,
    loss: Loss,
    groups: list[ParameterGroup],
    schedule: Schedule,
    sgd: SGD,
    after: Callable[[int], None] | None = None,
) -> None:
    """Train the groups' parameters; module contains them and all buffers, and is what checkpoints save.

    `after` is called after each segment, and may change the module's tensors in place.
    """

    def step_loss(batch: Batch) -> Tensor:
        if "images" not in batch:
            return loss(batch["embeddings"], batch)
        outputs = forward(batch["images"])
        if isinstance(outputs, tuple):
            whole: Any = tuple(distributed.all_gather_shards(each, data.step_images) for each in outputs)
        else:
            whole = distributed.all_gather_shards(outputs, data.step_images)
        return loss(whole, batch)

    engine.train(
        Stage(
            name=name,
            module=module,
            groups=groups,
            schedule=schedule,
            segments=data.segments,
            steps=data.segment_steps,
            prepare=data.prepare,
            loss=step_loss,
            momentum=sgd.momentum,
            weight_decay=sgd.weight_decay,
            nesterov=sgd.nesterov,
            after=after,
        )
    )


Items = tuple[Tensor, Tensor]  # images and keys of their augmentation, int64 [steps, batch], on the host


@dataclass(frozen=True)
class Batches:
    """A session's images in batches, reshuffled and augmented afresh in every epoch: {"images", "labels"}.

    Each epoch has its own seed, and a segment is an epoch or, if that takes too many bytes, a part of one. Epochs of a
    single step are prepared together if `merge` is set; how they are split does not change the numbers.
    """

    session: Session
    batch: int  # a smaller session is one batch
    epochs: int
    augmentation: augment.Augment
    engine: Engine
    name: str  # of the stage; seeds depend on it
    merge: bool = False

    def seed(self, epoch: int) -> int:
        return seed_for(self.engine.seed, self.name, epoch)

    @property
    def step_images(self) -> int:
        return min(self.batch, len(self.session.labels))

    @property
    def steps_of_epoch(self) -> int:
        return steps_of_epoch(self.session, self.batch)

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_of_epoch

    @property
    def segment_steps(self) -> int:
        step_bytes = self.step_images * self.session.images.shape[1:].numel()
        return steps_at_once(self.steps if self.merge else self.steps_of_epoch, step_bytes, self.engine.segment_bytes)

    @property
    def segments(self) -> int:
        return -(-self.steps // self.segment_steps)

    def items(self, segment: int) -> Items:
        first, last = segment * self.segment_steps, min(self.steps, (segment + 1) * self.segment_steps)
        return items_of(self.session, self.batch, self.seed, first, last)

    def prepare(self, segment: int) -> Batch:
        following = self.items(segment + 1) if segment + 1 < self.segments else None
        return augmented(self.session, self.items(segment), self.augmentation, following)


@dataclass(frozen=True)
class Iterations:
    """Data drawn for several iterations at once, rather than epoch by epoch; the last segment may be shorter."""

    iterations: int
    segment_steps: int
    step_images: int
    draw: Callable[[int, int], Batch]  # (steps, segment) -> their batches

    @property
    def segments(self) -> int:
        return -(-self.iterations // self.segment_steps)

    def prepare(self, segment: int) -> Batch:
        return self.draw(min(self.segment_steps, self.iterations - segment * self.segment_steps), segment)


def steps_of_epoch(session: Session, batch: int) -> int:
    return max(1, len(session.labels) // batch)


@lru_cache(maxsize=2)  # every part of a long epoch needs it, and the beginning of the next epoch
def epoch_items(images: int, batch: int, seed: int) -> Items:
    """The items of an epoch's steps; images that do not fill a batch are left out of this epoch."""
    order = augment.shuffled(images, seed)[: images // batch * batch].view(-1, batch)
    return order, augment.keys_for(order, seed + 1)


def items_of(session: Session, batch: int, seed: Callable[[int], int], first: int, last: int) -> Items:
    """The items of steps first to last - 1, counted over all epochs; each epoch has its own seed."""
    per_epoch, images = steps_of_epoch(session, batch), len(session.labels)
    epochs = range(first // per_epoch, -(-last // per_epoch))
    orders, keys = zip(*(epoch_items(images, min(batch, images), seed(epoch)) for epoch in epochs), strict=True)
    here = slice(first % per_epoch, first % per_epoch + last - first)
    return torch.cat(orders)[here], torch.cat(keys)[here]


def augmented(session: Session, items: Items, augmentation: augment.Augment, following: Items | None = None) -> Batch:
    """Images and labels of the items, [steps, batch, ...], each image augmented according to its key.

    Each rank gets its shard of every step's images, and all labels. Streamed images of the following items
    are prefetched while these are augmented and trained on.
    """
    order, keys = items
    shard = distributed.shard(order.shape[1])
    mine = order[:, shard]
    found = wholes(session.images, mine.flatten())
    if following is not None:
        prefetch(session.images, following[0][:, shard].flatten())
    images = augmentation(found, keys[:, shard].flatten()).unflatten(0, mine.shape)
    return {"images": images, "labels": session.labels[to_device(order, session.labels.device)]}


def check_steps(steps: int) -> None:
    """Refuse a training that would take years."""
    if steps > MOST_STEPS:
        raise CannotLearn(f"training would take {steps:,} steps, but may take {MOST_STEPS:,}; lower epochs")


def milestones_of(name: str, text: str) -> list[int]:
    """The numbers of a setting such as milestones=60,70; none if it is empty."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isascii() and part.isdecimal() and len(part) < 12 for part in parts):
        raise UserError(f"{name}={quotable(text)} is no list of whole numbers; write for instance {name}=60,70")
    return [int(part) for part in parts]


def check_batch(session: Session, batch: int) -> None:
    """Refuse batches that are too small for the ranks; the session may have fewer images than a batch."""
    few = len(session.labels) < min(batch, distributed.world_size())
    distributed.check_step_size(
        min(batch, len(session.labels)),
        "a session" if few else "a batch",
        "give it more images" if few else "raise batch",
    )
