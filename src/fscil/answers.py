"""Answers: what a method says about every test image after every session, with its margin and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from fscil.margins import Scores, scores_from


@dataclass(frozen=True)
class Answers:
    """Tensors [sessions, test images] on the CPU; -1 and -inf where an image's class, or any new class, is yet to come.

    The best base class, the best new class and their scores show what any other margin would have predicted.
    """

    predictions: Tensor  # the class with the highest logit; this alone depends on the margin
    best_base_class: Tensor
    best_new_class: Tensor
    best_base_score: Tensor  # float32, without the margin
    best_new_score: Tensor

    @classmethod
    def none_yet(cls, sessions: int, images: int) -> Answers:
        classes = [torch.full((sessions, images), -1) for _ in range(3)]
        return cls(*classes, *(torch.full((sessions, images), -torch.inf) for _ in range(2)))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Answers:
        return cls(**{field.name: tensors[field.name] for field in fields(cls)})

    def tensors(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def add(self, session: int, images: Tensor, logits: Tensor, base_classes: int, margin: float) -> None:
        """Set a session's answers for these images (bool [n_test]).

        Args:
            logits: [images, classes seen so far]; those of base classes, which come first, are lowered by the margin
        """
        logits = logits.float().cpu()
        base, base_class = logits[:, :base_classes].max(1)
        self.predictions[session, images] = logits.argmax(1)
        self.best_base_class[session, images] = base_class
        if logits.shape[1] == base_classes:
            self.best_base_score[session, images] = base + margin
            return
        new, new_class = logits[:, base_classes:].max(1)
        self.best_new_class[session, images] = base_classes + new_class
        self.best_new_score[session, images] = new
        self.best_base_score[session, images] = without_margin(base, new, margin)

    def scores(self, labels: Tensor, classes_per_session: Sequence[int]) -> Scores:
        best = self.best_base_class, self.best_new_class, self.best_base_score, self.best_new_score
        return scores_from(labels.cpu(), *best, classes_per_session)


def without_margin(base: Tensor, new: Tensor, margin: float) -> Tensor:
    """The best base scores before the margin was subtracted: [n] float32.

    The subtraction and its reversal are rounded. Where that would put an image on the other side of the margin, the
    score is moved to the next float, so that the margin of the run gives its predictions exactly.
    """
    to_base, scores = base >= new, base + margin
    towards = torch.where(to_base, torch.inf, -torch.inf)
    while (wrong := (scores.double() - margin >= new.double()) != to_base).any():
        scores[wrong] = scores[wrong].nextafter(towards[wrong])
    return scores
