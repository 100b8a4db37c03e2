"""Decoupled-Cosine: pre-train, fix the encoder, classify by cosine to class means (Vinyals et al., 2016).

The field's baseline: no incremental training, no meta-training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fscil.benchmark import Session
from fscil.methods.pretrain import PretrainSettings, pretrain
from fscil.methods.prototypes import EmbeddingSettings, PrototypeMethod


@dataclass(frozen=True)
class DecoupledCosineSettings(EmbeddingSettings, PretrainSettings):
    pass


class DecoupledCosine(PrototypeMethod):
    """Class means and cosine on a fixed encoder: the yardstick."""

    Settings: ClassVar[type] = DecoupledCosineSettings
    settings: DecoupledCosineSettings

    def learn_base(self, session: Session) -> None:
        self.model = pretrain(session, self.settings, self.context)
        self.model.rows.data = self.base_rows(self.model, session, self.settings.rows)
