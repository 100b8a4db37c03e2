"""Finetune: go on training every layer on each session's few images with cross-entropy, and forget.

The paper's first row and the lower bound of its tables; settings after TOPIC (Tao et al., 2020).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fscil.benchmark import Session
from fscil.engine import Stage, seed_for
from fscil.engine.schedule import decay_at
from fscil.engine.stage import Batch, ParameterGroup
from fscil.images import Images
from fscil.methods.cosine_network import CosineNetwork, cosine_logits
from fscil.methods.method import Method
from fscil.methods.pretrain import PretrainSettings, build_augmentation, cosine_loss, epoch_batches, pretrain
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

    def learn_base(self, session: Session) -> None:
        self.network = pretrain(session, self.settings, self.context)

    def learn_session(self, session: Session) -> None:
        settings, engine, network = self.settings, self.engine, self.network
        session = replace(session, images=session.images[:])  # the same handful in every epoch: read once
        name = f"finetune-{session.classes[0]}"
        torch.manual_seed(seed_for(engine.seed, name))
        network.add_rows(torch.randn(len(session.classes), network.encoder.dim) * 1e-3)
        augmentation = build_augmentation(settings, "basic", session.images.shape[-1])

        def prepare(_: int) -> Batch:
            """All epochs of the session at once: it is a handful of images."""
            epochs = [
                epoch_batches(session, len(session.labels), augmentation, seed_for(engine.seed, name, epoch))
                for epoch in range(settings.session_epochs)
            ]
            return {key: torch.cat([epoch[key] for epoch in epochs]) for key in epochs[0]}

        network.train()
        engine.train(
            Stage(
                name=name,
                module=network,
                groups=[ParameterGroup(list(network.parameters()), settings.session_lr)],
                schedule=decay_at([settings.session_decay_epoch]),
                segments=1,
                steps=settings.session_epochs,
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
