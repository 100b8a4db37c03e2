"""Decoupled-Cosine: pre-train, fix the encoder, classify by cosine to class means (Vinyals et al., 2016).

The honest yardstick of the field: no incremental training, no meta-training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fscil.benchmark import Session
from fscil.images import Images
from fscil.methods.cosine_network import CosineNetwork, class_means, cosine_logits
from fscil.methods.method import Method
from fscil.methods.pretrain import PretrainSettings, pretrain
from fscil.settings import setting

POWER = "to which features are raised; 1 in the paper, less evens out the few strong ones, for the sake of new classes"

MIRROR = "embed an image together with its mirror image, at twice the time; not in the paper"


@dataclass(frozen=True)
class DecoupledCosineSettings(PretrainSettings):
    rows: str = setting(
        "means",
        "of base classes: class means, comparable with prototypes, or the trained rows",
        choices=("means", "trained"),
    )
    power: float = setting(1.0, POWER, least=0.01)
    mirror: bool = setting(False, MIRROR)


class PrototypeMethod(Method):
    """What methods with a fixed encoder share: a new class's row is its prototype, the mean of its few embeddings."""

    network: CosineNetwork
    settings: PretrainSettings

    def learn_session(self, session: Session) -> None:
        """[W, p_j for j in Y_b]: the classifier is augmented with prototypes, without a gradient step."""
        self.network.add_rows(class_means(self.embed(session.images), session.labels, session.classes))

    def embed(self, images: Images) -> Tensor:
        return self.network.embed(images)


class DecoupledCosine(PrototypeMethod):
    Settings: ClassVar[type] = DecoupledCosineSettings
    settings: DecoupledCosineSettings

    def learn_base(self, session: Session) -> None:
        self.network = pretrain(session, self.settings, self.context)
        self.network.power, self.network.mirror = self.settings.power, self.settings.mirror
        if self.settings.rows == "means":
            self.network.rows.data = class_means(self.embed(session.images), session.labels, session.classes)

    def classify(self, embeddings: Tensor) -> Tensor:
        return cosine_logits(embeddings, self.network.rows.detach(), self.settings.scale)
