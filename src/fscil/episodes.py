"""Algorithm 1: fake incremental tasks, sampled from the base session for many training steps at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fscil.errors import UserError


@dataclass(frozen=True)
class TaskShape:
    """C phases of N-way K-shot supports; K' queries of every class seen so far after each phase."""

    phases: int  # C
    way: int  # N^
    shot: int  # K^
    queries: int  # K'
    mixed: bool = False  # a fake new class is the blend of two base classes, and all base rows stay

    @property
    def parents(self) -> int:
        """How many base classes a fake new class is made of."""
        return 2 if self.mixed else 1

    def old(self, base_classes: int) -> int:
        """|Y^_0|: how many classes a task starts with."""
        return base_classes if self.mixed else base_classes - self.way * self.phases

    def check(self, counts: Tensor) -> None:
        """Refuse shapes that the base session cannot give; counts: images of each base class."""
        new, base = self.way * self.phases * self.parents, len(counts)
        if min(self.phases, self.way, self.shot, self.queries) < 1:
            raise UserError("fake_phases, fake_way, fake_shot and fake_queries must all be at least 1")
        if new > base or (new == base and not self.mixed):
            each = "pairs of base classes" if self.mixed else "base classes"
            raise UserError(
                f"fake tasks of {self.phases} phases x {self.way}-way take {self.way * self.phases} {each}, but there "
                f"are {base} base classes; lower fake_way or fake_phases"
            )
        if int(counts.min()) < self.shot + self.queries:
            raise UserError(
                f"a fake task needs {self.shot} shots and {self.queries} queries of a class, but one base class has "
                f"{int(counts.min())} images; lower fake_shot or fake_queries"
            )


@dataclass(frozen=True)
class FakeTasks:
    """Indices into the base session's images for a number of steps. Rows of phase c are [old, new 1, ..., new c]."""

    old_classes: Tensor  # [steps, old]
    new_classes: Tensor  # [steps, C, N, parents]
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


def sample_fake_tasks(
    members: Tensor, counts: Tensor, shape: TaskShape, steps: int, generator: torch.Generator
) -> FakeTasks:
    """Algorithm 1 for `steps` independent tasks; members and counts as class_members gives them.

    Every class ranks its images at random in every step: the first K are its shots, if it is a fake new class, and
    queries come from the others alone, so no query is ever a support of the same task.
    """
    classes, most = members.shape
    C, N, K, Kq = shape.phases, shape.way, shape.shot, shape.queries
    device = members.device
    new, old = C * N * shape.parents, shape.old(classes)

    # line 1 and 2: divide the label space
    order = torch.rand(steps, classes, device=device, generator=generator).argsort(1)
    new_classes = order[:, :new].view(steps, C, N, shape.parents)
    old_classes = torch.arange(classes, device=device).expand(steps, -1) if shape.mixed else order[:, new:]

    ranks = torch.rand(steps, classes, most, device=device, generator=generator)
    ranks = ranks.masked_fill(torch.arange(most, device=device) >= counts[:, None], 2)
    needed = min(most, K + 2 * C * Kq)
    ranking = ranks.topk(needed, dim=2, largest=False).indices  # [steps, classes, needed]

    def images_of(which: Tensor, places: Tensor) -> Tensor:
        """which [steps, n] classes -> the images on those places of their ranking [steps, n, places]"""
        # places past the class's own images start again behind its shots
        room = torch.clamp(counts[which], max=needed)[..., None] - K
        wrapped = torch.where(places < K, places, K + (places - K) % room)
        step = torch.arange(steps, device=device)[:, None, None]
        return members[which[..., None], ranking[step, which[..., None], wrapped]]

    # line 4: K shots per new class
    supports = images_of(new_classes.reshape(steps, -1), torch.arange(K, device=device))
    supports = supports.view(steps, C, N, shape.parents, K).transpose(3, 4)
    # line 5: K' queries per class seen so far. Where there are enough images, a blended class
    # and its parents ask with different ones.
    old_queries, new_queries = [], []
    for c in range(C):
        places = K + 2 * c * Kq + torch.arange(Kq, device=device)
        old_queries.append(images_of(old_classes, places))
        so_far = new_classes[:, : c + 1].reshape(steps, -1)
        asked = images_of(so_far, places + Kq).view(steps, N * (c + 1), shape.parents, Kq)
        new_queries.append(asked.transpose(2, 3))
    assert old_queries[0].shape[1] == old
    return FakeTasks(old_classes, new_classes, supports, tuple(old_queries), tuple(new_queries))
