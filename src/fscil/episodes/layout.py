"""The order of a step's items: its supports, then for each phase the queries of old classes and those of new ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fscil.episodes.new_classes import Compose, only_parent
from fscil.episodes.tasks import FakeTasks, TaskShape


def sizes(shape: TaskShape, base_classes: int) -> list[int]:
    """How many items of a step are supports, old queries 1, new queries 1, old queries 2, ..."""
    found = [shape.phases * shape.way * shape.shot]
    for c in range(1, shape.phases + 1):
        found += [shape.old(base_classes) * shape.queries, c * shape.way * shape.queries]
    return found


def images_of_step(shape: TaskShape, base_classes: int) -> int:
    """How many base images a step uses; an item of a new class uses one of each parent."""
    supports, *queries = sizes(shape, base_classes)
    return shape.kind.parents * (supports + sum(queries[1::2])) + sum(queries[::2])


def query_labels(shape: TaskShape, base_classes: int, device: torch.device) -> list[Tensor]:
    """Per phase, the classifier row that each query belongs to: rows are in the order of the queries' classes."""
    old = shape.old(base_classes)
    rows = [torch.arange(old + c * shape.way, device=device) for c in range(1, shape.phases + 1)]
    return [r.repeat_interleave(shape.queries) for r in rows]


@dataclass(frozen=True)
class Part:
    """Consecutive items of every step, all made in the same way."""

    images: Tensor  # indices into the base session [steps, items, parents]
    turns: Tensor  # quarter turns [steps, items]
    compose: Compose


def parts(tasks: FakeTasks, shape: TaskShape) -> list[Part]:
    """The items of all steps, in order; their number is that of `sizes`."""

    def new(images: Tensor) -> Part:
        """[steps, classes, items of a class, parents]"""
        turns = tasks.turns.flatten(1)[:, : images.shape[1], None].expand(images.shape[:3])
        return Part(images.flatten(1, 2), turns.flatten(1), shape.kind.compose)

    def old(images: Tensor) -> Part:
        """[steps, classes, items of a class]"""
        images = images.flatten(1)
        return Part(images[:, :, None], torch.zeros_like(images), only_parent)

    found = [new(tasks.supports.flatten(1, 2))]
    for old_queries, new_queries in zip(tasks.old_queries, tasks.new_queries, strict=True):
        found += [old(old_queries), new(new_queries)]
    return found
