"""Memory: exemplars of earlier sessions, within a budget that the method declares."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from fscil.benchmark import Session
from fscil.errors import UserError

BUDGETS = (
    "none, N/class (N images of each class), N (N in total, shared by the classes seen), N+M/class (N in total of base "
    "classes, M of each new class) or all"
)


def parse_budget(text: str) -> tuple[int | None, int | None]:
    """(most per class, most in total); None if there is no limit.

    If both are given, the first is for each new class, and the base classes share the second.
    """
    if text in ("none", "all"):
        return (0, 0) if text == "none" else (None, None)
    found = re.fullmatch(r"(?:(\d{1,9})\+)?(\d{1,9})(/class)?", text)
    if found is None or (found[1] and not found[3]):
        raise UserError(f"memory={text} is not a budget; give {BUDGETS}")
    if found[3]:
        return int(found[2]), int(found[1]) if found[1] else None
    return None, int(found[2])


class Memory:
    """uint8 images [n, 3, h, w] and labels [n], class by class in order of arrival, a class's best exemplars first.

    Methods see every session once. Only what is kept here may be trained on later.
    """

    def __init__(self, budget: str = "none") -> None:
        self.budget = budget
        self.of_class, self.in_all = parse_budget(budget)
        self.images = torch.empty(0, 3, 0, 0, dtype=torch.uint8)
        self.labels = torch.empty(0, dtype=torch.int64)
        self.base = 0  # how many classes the first session had; 0 before it

    def __len__(self) -> int:
        return len(self.labels)

    def quota(self, label: int, classes: int) -> int | None:
        """How many images of a class may be kept when this many classes have been seen; None: all."""
        if self.in_all is None:
            return self.of_class
        if self.of_class is None:
            return self.in_all // classes
        base = self.base or classes
        if label >= base:
            return self.of_class
        return self.in_all // base + (label < self.in_all % base)  # the first classes share what is left over

    def keep(self, session: Session, ranking: Tensor | None = None) -> None:
        """Keep what the budget allows of a session, and less of older classes if they share the budget.

        The ranking [n] lists the session's images, best first; by default they are kept in their order.
        """
        seen = max(session.classes) + 1  # classes are numbered in order of arrival
        self.base = self.base or seen
        order = torch.arange(len(session.labels)) if ranking is None else ranking.cpu()
        labels = session.labels.cpu()[order]
        new = torch.cat([order[labels == label][: self.quota(label, seen)] for label in session.classes])
        older = [label for label in self.labels.unique(sorted=True).tolist() if label not in session.classes]
        stay = [torch.nonzero(self.labels == label).flatten()[: self.quota(label, seen)] for label in older]
        self.choose(session, new, torch.cat(stay) if stay else torch.empty(0, dtype=torch.int64))

    def choose(self, session: Session, new: Tensor, stay: Tensor) -> None:
        """Keep exactly these images of the session after those exemplars, int64 [n], in that order."""
        self.base = self.base or max(session.classes) + 1
        kept, labels = self.images[stay.to(self.labels.device)], self.labels[stay.to(self.labels.device)]
        if len(new) == 0:
            self.images, self.labels = kept, labels
            return
        new = new.to(session.labels.device)
        images = session.images[new]
        self.images = torch.cat([kept, images]) if len(kept) else images
        self.labels = torch.cat([labels.to(session.labels), session.labels[new]])

    def joined(self, session: Session) -> Session:
        """All exemplars followed by the session's images: what replay trains on."""
        classes = (*self.labels.unique(sorted=True).tolist(), *session.classes)
        if len(self) == 0:
            return Session(classes, session.images, session.labels)
        return Session(classes, torch.cat([self.images, session.images[:]]), torch.cat([self.labels, session.labels]))

    def check_budget(self, classes: int, base: int = 0) -> None:
        """Refuse a budget that is too small for so many classes, before anything is trained."""
        if self.in_all and self.of_class is not None:  # of the base classes alone
            classes = base
        if self.in_all and self.in_all < classes:
            raise UserError(f"memory={self.budget} is less than one image for each of {classes} classes; raise it")

    def check(self, classes: int) -> None:
        """A method that keeps more than it declares has a bug, and its numbers would be misleading."""
        counts = torch.bincount(self.labels, minlength=classes)
        sharing = 0 if self.in_all is None else len(counts) if self.of_class is None else self.base
        too_many = self.of_class is not None and bool((counts[sharing:] > self.of_class).any())
        if too_many or (self.in_all is not None and int(counts[:sharing].sum()) > self.in_all):
            raise UserError(
                f"the method keeps {len(self)} images, {counts.max()} of a class, but declares memory={self.budget}"
            )

    # -- what a checkpoint holds ---------------------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        base = torch.tensor(self.base)
        return {"memory.images": self.images, "memory.labels": self.labels, "memory.base": base}

    def load_state(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        self.images = tensors["memory.images"].to(device, copy=True)
        self.labels = tensors["memory.labels"].to(device, copy=True)
        self.base = int(tensors["memory.base"])
