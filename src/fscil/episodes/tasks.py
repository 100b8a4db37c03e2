"""Algorithm 1: fake incremental tasks, sampled from the base session for many training steps at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fscil.episodes.new_classes import KINDS, NewClasses
from fscil.naming import choose


@dataclass(frozen=True)
class TaskShape:
    """C phases of N-way K-shot supports; K' queries of every class seen so far after each phase."""

    phases: int  # C
    way: int  # N^
    shot: int  # K^
    queries: int  # K'
    new_classes: str = "base"  # one of KINDS

    @property
    def kind(self) -> NewClasses:
        return KINDS[choose(self.new_classes, KINDS, "value for fake_classes")]

    def old(self, base_classes: int) -> int:
        """|Y^_0|: how many classes a task starts with."""
        return base_classes if self.kind.base_rows_stay else base_classes - self.way * self.phases


@dataclass(frozen=True)
class FakeTasks:
    """Indices into the base session's images for a number of steps. Rows of phase c are [old, new 1, ..., new c]."""

    old_classes: Tensor  # [steps, old]
    new_classes: Tensor  # [steps, C, N, parents]
    turns: Tensor  # quarter turns of each new class [steps, C, N]
    supports: Tensor  # [steps, C, N, K, parents]
    old_queries: tuple[Tensor, ...]  # per phase [steps, old, K']
    new_queries: tuple[Tensor, ...]  # per phase [steps, N * phase, K', parents]


def class_members(labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """The image indices of each class [classes, most], padded by repetition, and how many there are [classes]."""
    counts = torch.bincount(labels, minlength=classes)
    order = torch.argsort(labels, stable=True)
    starts = counts.cumsum(0) - counts
    slots = torch.arange(int(counts.max()), device=labels.device)
    return order[starts[:, None] + slots % counts[:, None]], counts


def draw_images(
    members: Tensor, counts: Tensor, way: int, each: int, steps: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Different images of random classes, for every step: classes [steps, way], images [steps, way, each]"""
    (classes, most), device = members.shape, members.device
    drawn = torch.rand(steps, classes, device=device, generator=generator).argsort(1)[:, :way]
    ranks = torch.rand(steps, way, most, device=device, generator=generator)
    ranks = ranks.masked_fill(torch.arange(most, device=device) >= counts[drawn][..., None], 2)
    return drawn, members[drawn[..., None], ranks.topk(each, dim=2, largest=False).indices]


def sample_fake_tasks(
    members: Tensor, counts: Tensor, shape: TaskShape, steps: int, generator: torch.Generator
) -> FakeTasks:
    """Algorithm 1 for `steps` independent tasks; members and counts come from class_members.

    In every step each class ranks its images at random. The first K are its shots if it is (the parent of) a new
    class; queries come from the rest only, so no query is ever a support of the same task.
    """
    classes, most = members.shape
    kind, C, N, K, Kq = shape.kind, shape.phases, shape.way, shape.shot, shape.queries
    device = members.device
    new = C * N * kind.parents

    # lines 1 and 2: divide the label space
    order = torch.rand(steps, classes, device=device, generator=generator).argsort(1)
    new_classes = order[:, :new].view(steps, C, N, kind.parents)
    old_classes = torch.arange(classes, device=device).expand(steps, -1) if kind.base_rows_stay else order[:, new:]

    ranks = torch.rand(steps, classes, most, device=device, generator=generator)
    ranks = ranks.masked_fill(torch.arange(most, device=device) >= counts[:, None], 2)
    needed = min(most, K + 2 * C * Kq)
    ranking = ranks.topk(needed, dim=2, largest=False).indices  # [steps, classes, needed]
    if kind.turned:
        turns = torch.randint(1, 4, (steps, C, N), device=device, generator=generator)
    else:
        turns = torch.zeros(steps, C, N, dtype=torch.long, device=device)

    def images_of(which: Tensor, places: Tensor) -> Tensor:
        """Classes [steps, n] -> the images at these places of their rankings [steps, n, places]"""
        # in a class with too few images, places wrap around to the first one after its shots
        room = torch.clamp(counts[which], max=needed)[..., None] - K
        wrapped = torch.where(places < K, places, K + (places - K) % room)
        step = torch.arange(steps, device=device)[:, None, None]
        return members[which[..., None], ranking[step, which[..., None], wrapped]]

    # line 4: K shots per new class
    supports = images_of(new_classes.reshape(steps, -1), torch.arange(K, device=device))
    supports = supports.view(steps, C, N, kind.parents, K).transpose(3, 4)
    # line 5: K' queries per class seen so far. If there are enough images, a new class
    # and its parents use different ones as queries.
    old_queries, new_queries = [], []
    for c in range(C):
        places = K + 2 * c * Kq + torch.arange(Kq, device=device)
        old_queries.append(images_of(old_classes, places))
        so_far = new_classes[:, : c + 1].reshape(steps, -1)
        asked = images_of(so_far, places + Kq).view(steps, N * (c + 1), kind.parents, Kq)
        new_queries.append(asked.transpose(2, 3))
    return FakeTasks(old_classes, new_classes, turns, supports, tuple(old_queries), tuple(new_queries))
