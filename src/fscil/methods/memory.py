"""Memory: exemplars of earlier sessions, within a budget that the method declares."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from fscil.benchmark import Session
from fscil.errors import UserError

BUDGETS = "none, N/class (N images of each class), N (N in total, shared by the classes seen) or all"


def parse_budget(text: str) -> tuple[int | None, int | None]:
    """(most per class, most in total); None if there is no limit."""
    if text in ("none", "all"):
        return (0, 0) if text == "none" else (None, None)
    found = re.fullmatch(r"(\d{1,9})(/class)?", text)
    if found is None:
        raise UserError(f"memory={text} is not a budget; give {BUDGETS}")
    count = int(found[1])
    return (count, None) if found[2] else (None, count)


class Memory:
    """uint8 images [n, 3, h, w] and labels [n], class by class in order of arrival, a class's best exemplars first.

    Methods see every session once. Only what is kept here may be trained on later.
    """

    def __init__(self, budget: str = "none") -> None:
        self.budget = budget
        self.of_class, self.in_all = parse_budget(budget)
        self.images = torch.empty(0, 3, 0, 0, dtype=torch.uint8)
        self.labels = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def quota(self, classes: int) -> int | None:
        """How many images per class may be kept when this many classes have been seen; None: all."""
        shares = [self.of_class] if self.of_class is not None else []
        if self.in_all is not None:
            shares.append(self.in_all // classes)
        return min(shares) if shares else None

    def keep(self, session: Session, ranking: Tensor | None = None) -> None:
        """Keep what the budget allows of a session, and less of older classes if they share the budget.

        The ranking [n] lists the session's images, best first; by default they are kept in their order.
        """
        quota = self.quota(max(session.classes) + 1)  # classes are numbered in order of arrival
        if quota == 0:
            self.images, self.labels = self.images[:0], self.labels[:0]
            return
        order = torch.arange(len(session.labels)) if ranking is None else ranking.cpu()
        labels = session.labels.cpu()[order]
        new = torch.cat([order[labels == label][:quota] for label in session.classes]).to(session.labels.device)
        kept, kept_labels = [session.images[new]], [session.labels[new]]
        for label in self.labels.unique(sorted=True).flip(0).tolist():
            if label not in session.classes:
                stay = torch.nonzero(self.labels == label).flatten()[:quota]
                kept.insert(0, self.images[stay])
                kept_labels.insert(0, self.labels[stay])
        self.images, self.labels = torch.cat(kept), torch.cat(kept_labels)

    def joined(self, session: Session) -> Session:
        """All exemplars followed by the session's images: what replay trains on."""
        classes = (*self.labels.unique(sorted=True).tolist(), *session.classes)
        if len(self) == 0:
            return Session(classes, session.images, session.labels)
        return Session(classes, torch.cat([self.images, session.images[:]]), torch.cat([self.labels, session.labels]))

    def check_budget(self, classes: int) -> None:
        """Refuse a budget that is too small for so many classes, before anything is trained."""
        if self.in_all and self.quota(classes) == 0:
            raise UserError(f"memory={self.budget} is less than one image for each of {classes} classes; raise it")

    def check(self, classes: int) -> None:
        """A method that keeps more than it declares has a bug, and its numbers would be misleading."""
        counts = torch.bincount(self.labels, minlength=classes)
        too_many = self.of_class is not None and int(counts.max()) > self.of_class
        if too_many or (self.in_all is not None and len(self) > self.in_all):
            raise UserError(
                f"the method keeps {len(self)} images, {counts.max()} of a class, but declares memory={self.budget}"
            )

    # -- what a checkpoint holds ---------------------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        return {"memory.images": self.images, "memory.labels": self.labels}

    def load_state(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        self.images = tensors["memory.images"].to(device, copy=True)
        self.labels = tensors["memory.labels"].to(device, copy=True)
