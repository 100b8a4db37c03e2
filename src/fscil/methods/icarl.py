"""iCaRL: exemplars, and distillation from the network before the session (Rebuffi et al., 2017).

The paper's row is TOPIC's form of it (Tao et al., 2020): exemplars drawn at random, a softmax over all classes, most
layers frozen. That is the default; the preset icarl-original has the method of its own paper: herding, sigmoid outputs
from the base session on and the nearest mean of exemplars.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.benchmark import Session
from fscil.engine.stage import Batch
from fscil.errors import UserError
from fscil.methods.pretrain import COSINE, HIGHEST_RATE, Objective
from fscil.methods.prototypes import class_means
from fscil.methods.replay import WEIGHT, ReplayMethod, ReplaySettings, both, cross_entropy, distillation
from fscil.model import Model
from fscil.settings import setting


@dataclass(frozen=True)
class ICaRLSettings(ReplaySettings):
    session_lr: float = setting(
        0.01,
        "learning rate in few-shot sessions; TOPIC's 0.1, whose best epoch it finds on test data, forgets all base "
        "classes by the last epoch: seen on test images of digits, then on the inner benchmark of glyphs",
        least=0,
        most=HIGHEST_RATE,
    )
    loss: str = setting(
        "topic",
        "topic: CE of the shots + distillation * KD of the exemplars; limit: the paper's Eq. (3), (1 - balance) CE + "
        "balance KD of all images; sigmoid: iCaRL's binary cross-entropy, also of base training, where "
        "labels are not smoothed",
        choices=("topic", "limit", "sigmoid"),
    )
    distillation: float = setting(1.0, "weight of KD in loss=topic", origin="TOPIC's", **WEIGHT)
    balance: float = setting(0.5, "lambda of Eq. (3), in loss=limit; the paper has no number", least=0, most=1)
    temperature: float = setting(2.0, "of KD; Eq. (3) has 1", origin="TOPIC's", least=0.01, most=1e6)
    classifier: str = setting(
        "rows",
        "that answers: the trained rows, or iCaRL's nearest mean of exemplars (nme)",
        origin="TOPIC's",
        choices=("rows", "nme"),
    )


class ICaRL(ReplayMethod):
    """Exemplars, and distillation from the network before"""

    Settings: ClassVar[type] = ICaRLSettings
    settings: ICaRLSettings

    @classmethod
    def own_training(cls, settings: ICaRLSettings) -> bool:
        return settings.loss == "sigmoid"

    def check_sessions(self, sessions: Sequence[Session]) -> None:
        super().check_sessions(sessions)
        if self.settings.classifier == "nme" and 0 in (self.memory.of_class, self.memory.in_all):
            raise UserError(
                f"classifier=nme needs an exemplar of every class, but memory={self.memory.budget}; raise it, or set "
                "classifier=rows"
            )

    def objective(self) -> Objective:
        if self.settings.loss != "sigmoid":
            return COSINE

        def loss(model: Model, embeddings: Tensor, batch: Batch) -> Tensor:
            logits = model.calibrator(model.rows, embeddings)
            none_old = logits[:, :0]
            return icarl_loss(logits, none_old, batch, 0, self.settings, bias_of_sigmoids(len(model.rows)))

        return Objective("sigmoid", forward=lambda model, images: model.encoder(images), loss=loss)

    def learn_base(self, session: Session) -> None:
        super().learn_base(session)
        self.set_rows_of_exemplars()

    def learn_session(self, session: Session) -> None:
        name, joined = f"icarl-{session.classes[0]}", self.memory.joined(session)
        if self.settings.classifier == "nme":  # rows of the last session answer, but the trained ones keep learning
            self.model.rows.data = self.tensors["rows"].clone()
        teacher = self.begin(session, name)
        model, old, bias = self.model, len(teacher.rows), bias_of_sigmoids(int(teacher.base.sum()))

        def loss(outputs: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
            logits = model.calibrator(self.head(teacher), outputs[0])
            taught = teacher.calibrator(teacher.rows, outputs[1])
            return icarl_loss(logits, taught, batch, old, self.settings, bias)

        self.train_session(name, joined, both(model, teacher), loss, batch=self.settings.session_batch)
        self.end(session, teacher)
        self.set_rows_of_exemplars()

    def set_rows_of_exemplars(self) -> None:
        """Nearest mean of exemplars: features and means are normalised, so the nearest mean has the largest logit."""
        if self.settings.classifier == "nme":
            self.tensors["rows"] = self.model.rows.detach().clone()
            features, labels = F.normalize(self.embed(self.memory.images), dim=1), self.memory.labels
            means = class_means(features, labels, tuple(range(len(self.model.rows))))
            self.model.rows.data = self.settings.scale * F.normalize(means, dim=1)


def bias_of_sigmoids(base: int) -> float:
    """With it, a logit of 0 means a probability of one in so many base classes, where sigmoids alone give a half.

    iCaRL's code learns biases; our rows have none. Without one, base training on glyphs (60 classes, one seed) ends at
    the loss of answers that are the same for every image.
    """
    return -math.log(max(base - 1, 1))


def icarl_loss(
    logits: Tensor, taught: Tensor, batch: Batch, old: int, settings: ICaRLSettings, bias: float = 0.0
) -> Tensor:
    """logits [n, classes] and what the teacher answers, [n, old classes]; sigmoids have a bias"""
    is_new, every = batch["labels"] >= old, torch.ones_like(batch["labels"])
    if settings.loss == "sigmoid":  # iCaRL's Algorithm 3: old classes have old outputs as targets, new ones labels
        is_own = batch["labels"][:, None] == torch.arange(old, logits.shape[1], device=logits.device)
        targets = torch.cat([(taught + bias).sigmoid(), is_own.to(taught)], 1)
        return F.binary_cross_entropy_with_logits(logits + bias, targets, reduction="none").sum(1).mean()
    if settings.loss == "limit":
        kd = distillation(logits[:, :old], taught, settings.temperature, every)
        return (1 - settings.balance) * cross_entropy(logits, batch, every) + settings.balance * kd
    kd = distillation(logits[:, :old], taught, settings.temperature, ~is_new)
    return cross_entropy(logits, batch, is_new) + settings.distillation * kd
