"""Finetune: keep training every layer on each session's few images with cross-entropy, and forget.

The paper's first row and the lower bound of its tables; settings follow TOPIC (Tao et al., 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F

from fscil.benchmark import Session
from fscil.methods.replay import SessionMethod, SessionSettings, check_session


@dataclass(frozen=True)
class FinetuneSettings(SessionSettings):
    pass


class Finetune(SessionMethod):
    """Trains every layer on each session's images, and forgets."""

    Settings: ClassVar[type] = FinetuneSettings

    def learn_session(self, session: Session) -> None:
        check_session(session)
        model, name = self.model, f"finetune-{session.classes[0]}"
        self.add_random_rows(session, name)
        model.train()
        self.train_session(
            name,
            session,
            forward=model.encoder,
            loss=lambda f, batch: F.cross_entropy(model.calibrator(model.rows, f), batch["labels"]),
        )
        model.eval()
