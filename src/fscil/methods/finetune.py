"""Finetune: keep training every layer on each session's few images with cross-entropy, and forget.

The paper's first row and the lower bound of its tables; settings follow TOPIC (Tao et al., 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from fscil import distributed
from fscil.benchmark import Session
from fscil.engine import seed_for
from fscil.engine.schedule import decay_at
from fscil.engine.stage import ParameterGroup
from fscil.methods.method import Method
from fscil.methods.pretrain import COSINE, HIGHEST_RATE, PretrainSettings, build_augmentation, pretrain
from fscil.methods.training import MOST_STEPS, Batches, train
from fscil.settings import setting


@dataclass(frozen=True)
class FinetuneSettings(PretrainSettings):
    session_epochs: int = setting(
        70, "TOPIC's number for CIFAR100; all shots of a session are one batch", least=1, most=MOST_STEPS
    )
    session_lr: float = setting(0.1, "TOPIC's", least=0, most=HIGHEST_RATE)
    session_decay_epoch: int = setting(60, "TOPIC's: the learning rate falls to a tenth", least=0, most=MOST_STEPS)


class Finetune(Method):
    """Trains every layer on each session's images, and forgets."""

    Settings: ClassVar[type] = FinetuneSettings
    fixed_encoder: ClassVar[bool] = False
    settings: FinetuneSettings

    def check_sessions(self, sessions: Sequence[Session]) -> None:
        for session in sessions[1:]:
            check_session(session)

    def learn_base(self, session: Session) -> None:
        self.model = pretrain(session, self.settings, self.context)

    def learn_session(self, session: Session) -> None:
        check_session(session)
        settings, engine, model = self.settings, self.engine, self.model
        session = replace(session, images=session.images[:])  # the same few images in every epoch, so read them once
        name = f"finetune-{session.classes[0]}"
        torch.manual_seed(seed_for(engine.seed, name))
        model.add_rows(torch.randn(len(session.classes), model.encoder.dim) * 1e-3)
        augmentation = build_augmentation(settings, "basic", model)
        model.train()
        train(
            engine,
            name,
            model,
            Batches(session, len(session.labels), settings.session_epochs, augmentation, engine, name, merge=True),
            forward=lambda images: COSINE.forward(model, images),
            loss=lambda embeddings, batch: COSINE.loss(model, embeddings, batch),
            groups=[ParameterGroup(list(model.parameters()), settings.session_lr)],
            schedule=decay_at([settings.session_decay_epoch]),
            sgd=settings.sgd,
        )
        model.eval()


def check_session(session: Session) -> None:
    """Check that the session can be sharded: all its images are one step, whatever the batch size of pre-training."""
    remedy = "raise way or shot, since finetuning takes a session as one step"
    distributed.check_step_size(len(session.labels), "a session", remedy)
