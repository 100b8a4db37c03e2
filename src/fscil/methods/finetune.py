"""Finetune: go on training every layer on each session's few images with cross-entropy, and forget.

The paper's first row and the lower bound of its tables; settings after TOPIC (Tao et al., 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fscil import distributed
from fscil.benchmark import Session
from fscil.engine import Stage, seed_for
from fscil.engine.schedule import decay_at
from fscil.engine.stage import Batch, ParameterGroup, steps_at_once
from fscil.images import Images
from fscil.methods.cosine_network import CosineNetwork, cosine_logits
from fscil.methods.method import Method
from fscil.methods.pretrain import PretrainSettings, augmented, build_augmentation, cosine_loss, items_of, pretrain
from fscil.settings import setting


@dataclass(frozen=True)
class FinetuneSettings(PretrainSettings):
    session_epochs: int = setting(70, "TOPIC's for CIFAR100; all shots of a session are one batch", least=1)
    session_lr: float = setting(0.1, "TOPIC's", least=0)
    session_decay_epoch: int = setting(60, "TOPIC's: the learning rate falls to a tenth", least=0)


class Finetune(Method):
    Settings: ClassVar[type] = FinetuneSettings
    fixed_encoder: ClassVar[bool] = False
    network: CosineNetwork
    settings: FinetuneSettings

    def check_sessions(self, sessions: Sequence[Session]) -> None:
        for session in sessions[1:]:
            check_session(session)

    def learn_base(self, session: Session) -> None:
        self.network = pretrain(session, self.settings, self.context)

    def learn_session(self, session: Session) -> None:
        check_session(session)
        settings, engine, network = self.settings, self.engine, self.network
        session = replace(session, images=session.images[:])  # the same handful in every epoch: read once
        name = f"finetune-{session.classes[0]}"
        torch.manual_seed(seed_for(engine.seed, name))
        network.add_rows(torch.randn(len(session.classes), network.encoder.dim) * 1e-3)
        augmentation = build_augmentation(settings, "basic", session.images.shape[-1])
        # an epoch is one step, and has a seed of its own: how they are cut changes no number
        epoch_bytes = len(session.labels) * session.images.shape[1:].numel()
        steps = steps_at_once(settings.session_epochs, epoch_bytes, engine.segment_bytes)

        def seed(epoch: int) -> int:
            return seed_for(engine.seed, name, epoch)

        def prepare(segment: int) -> Batch:
            first, last = segment * steps, min(settings.session_epochs, (segment + 1) * steps)
            return augmented(session, items_of(session, len(session.labels), seed, first, last), augmentation)

        network.train()
        engine.train(
            Stage(
                name=name,
                module=network,
                groups=[ParameterGroup(list(network.parameters()), settings.session_lr)],
                schedule=decay_at([settings.session_decay_epoch]),
                segments=-(-settings.session_epochs // steps),
                steps=steps,
                prepare=prepare,
                loss=lambda batch: cosine_loss(network, batch, settings.scale),
                momentum=settings.momentum,
                weight_decay=settings.weight_decay,
                nesterov=settings.nesterov,
            )
        )

    def embed(self, images: Images) -> Tensor:
        return self.network.encoder.embed(images)

    def classify(self, embeddings: Tensor) -> Tensor:
        return cosine_logits(embeddings, self.network.rows.detach(), self.settings.scale)


def check_session(session: Session) -> None:
    """All its images are one step, whatever the batch size of pre-training."""
    remedy = "raise way or shot, since finetuning takes a session as one step"
    distributed.check_step_size(len(session.labels), "a session", remedy)
