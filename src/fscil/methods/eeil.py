"""EEIL: cross-entropy and distillation of every old task, then balanced fine-tuning (Castro et al., 2018).

The paper's row is TOPIC's form of it (Tao et al., 2020): its iCaRL with a little cross-entropy of the exemplars. That
is the default; the preset eeil-original has the method of its own paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fscil.benchmark import Session
from fscil.engine.stage import Batch
from fscil.methods.pretrain import HIGHEST_RATE
from fscil.methods.replay import WEIGHT, ReplayMethod, ReplaySettings, both, cross_entropy, distillation, herded
from fscil.model import Model
from fscil.settings import setting


@dataclass(frozen=True)
class EEILSettings(ReplaySettings):
    session_lr: float = setting(
        0.01,
        "learning rate in few-shot sessions; TOPIC's is 0.1, for which see icarl",
        least=0,
        most=HIGHEST_RATE,
    )
    loss: str = setting(
        "topic",
        "topic: CE of the shots + exemplar_weight * CE of the exemplars + distillation * KD of the exemplars over all "
        "old classes; eeil: CE + distillation * the sum of KD over old tasks, of all images",
        choices=("topic", "eeil"),
    )
    exemplar_weight: float = setting(0.004, "of the exemplars' CE in loss=topic", origin="TOPIC's", **WEIGHT)
    distillation: float = setting(1.0, "weight of KD", origin="TOPIC's", **WEIGHT)
    temperature: float = setting(2.0, "of KD", origin="EEIL's and TOPIC's", least=0.01, most=1e6)
    balanced_epochs: int = setting(
        0,
        "of EEIL's second phase: fine-tuning on equally many images of every class; 0: none",
        origin="TOPIC's",
        least=0,
        most=1000,
    )
    balanced_lr: float = setting(0.01, "learning rate of that phase", least=0, most=HIGHEST_RATE)


class EEIL(ReplayMethod):
    """Distillation of old tasks, then a balanced phase if asked"""

    Settings: ClassVar[type] = EEILSettings
    settings: EEILSettings

    def learn_base(self, session: Session) -> None:
        super().learn_base(session)
        self.tensors["tasks"] = torch.tensor([len(session.classes)])  # classes of each session so far

    def learn_session(self, session: Session) -> None:
        settings, name, joined = self.settings, f"eeil-{session.classes[0]}", self.memory.joined(session)
        teacher = self.begin(session, name)
        model, tasks = self.model, self.tensors["tasks"].tolist()

        def loss(outputs: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
            logits = model.calibrator(self.head(teacher), outputs[0])
            taught = teacher.calibrator(teacher.rows, outputs[1])
            if settings.loss == "eeil":
                return eeil_loss(logits, taught, batch, tasks, settings)
            return topic_loss(logits, taught, batch, settings)

        self.train_session(name, joined, both(model, teacher), loss, batch=settings.session_batch)
        if settings.balanced_epochs:
            self.fine_tune(session, joined, teacher, name)
        self.end(session, teacher)
        self.tensors["tasks"] = torch.tensor([*tasks, len(session.classes)])

    def fine_tune(self, session: Session, joined: Session, teacher: Model, name: str) -> None:
        """Equally many images of every class; the network of the first phase teaches the new classes."""
        settings, model, first_phase = self.settings, self.model, self.model.frozen_copy()
        fewest = int(torch.bincount(joined.labels)[list(joined.classes)].min())
        ranking = herded(self.embed(joined.images), joined, fewest)
        self.set_mode()
        chosen = Session(joined.classes, joined.images[ranking], joined.labels[ranking])
        tasks = [*self.tensors["tasks"].tolist(), len(session.classes)]

        def forward(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return model.encoder(images), teacher.encoder(images), first_phase.encoder(images)

        def loss(outputs: tuple[Tensor, Tensor, Tensor], batch: Batch) -> Tensor:
            logits = model.calibrator(self.head(teacher), outputs[0])
            old = teacher.calibrator(teacher.rows, outputs[1])
            new = first_phase.calibrator(first_phase.rows, outputs[2])[:, len(teacher.rows) :]
            return eeil_loss(logits, torch.cat([old, new], 1), batch, tasks, settings)

        self.train_session(
            f"{name}-balanced",
            chosen,
            forward,
            loss,
            batch=settings.session_batch,
            epochs=settings.balanced_epochs,
            lr=settings.balanced_lr,
        )


def topic_loss(logits: Tensor, taught: Tensor, batch: Batch, settings: EEILSettings) -> Tensor:
    """logits [n, classes] and what the teacher answers, [n, old classes]"""
    old = taught.shape[1]
    is_new = batch["labels"] >= old
    ce = cross_entropy(logits, batch, is_new) + settings.exemplar_weight * cross_entropy(logits, batch, ~is_new)
    return ce + settings.distillation * distillation(logits[:, :old], taught, settings.temperature, ~is_new)


def eeil_loss(logits: Tensor, taught: Tensor, batch: Batch, tasks: list[int], settings: EEILSettings) -> Tensor:
    """EEIL's Eq. (2): L = L_C + sum over tasks f of L_Df, each over the classes of its task alone.

    logits [n, classes] and what is taught of them, [n, classes of the tasks]
    """
    every = torch.ones_like(batch["labels"])
    loss = cross_entropy(logits, batch, every)
    pairs = zip(logits[:, : sum(tasks)].split(tasks, 1), taught.split(tasks, 1), strict=True)
    for own, target in pairs:
        loss = loss + settings.distillation * distillation(own, target, settings.temperature, every)
    return loss
