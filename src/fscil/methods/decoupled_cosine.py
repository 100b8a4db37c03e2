"""Decoupled-Cosine: pre-train, fix the encoder, classify by cosine to class means (Vinyals et al., 2016).

The honest yardstick of the field: no incremental training, no meta-training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.benchmark import Session
from fscil.images import Images
from fscil.methods.cosine_network import CosineNetwork, class_means, cosine_logits, whitening
from fscil.methods.method import Method
from fscil.methods.pretrain import PretrainSettings, pretrain
from fscil.settings import setting

POWER = "to which features are raised; 1 in the paper, less evens out the few strong ones, for the sake of new classes"

MIRROR = "embed an image together with its mirror image, at twice the time; not in the paper"

WHITEN = (
    "divide embeddings by the root of the covariance within base classes, to which so many times its mean variance is "
    "added; 0, as in the paper, for not at all"
)


@dataclass(frozen=True)
class DecoupledCosineSettings(PretrainSettings):
    rows: str = setting(
        "means",
        "of base classes: class means, comparable with prototypes, or the trained rows",
        choices=("means", "trained"),
    )
    power: float = setting(1.0, POWER, least=0.01)
    mirror: bool = setting(False, MIRROR)
    whiten: float = setting(0.0, WHITEN, least=0)


class EmbeddingSettings(Protocol):
    @property
    def rows(self) -> str: ...
    @property
    def power(self) -> float: ...
    @property
    def mirror(self) -> bool: ...
    @property
    def whiten(self) -> float: ...


class PrototypeMethod(Method):
    """What methods with a fixed encoder share: a new class's row is its prototype, the mean of its few embeddings."""

    network: CosineNetwork
    settings: EmbeddingSettings

    def base_rows(self, network: CosineNetwork, session: Session) -> Tensor:
        """Decide how the network embeds; base classes' rows among such embeddings, [classes, d]."""
        settings, trained = self.settings, network.rows.detach().clone()
        network.power, network.mirror = settings.power, settings.mirror
        if settings.rows == "trained" and settings.whiten == 0:
            return trained
        embeddings = network.embed(session.images)
        if settings.whiten > 0:
            network.whitening.copy_(whitening(embeddings, session.labels, settings.whiten))
            embeddings = embeddings @ network.whitening
            # a row is applied to embeddings, so it takes the inverse of what they are multiplied by
            trained = torch.linalg.solve(network.whitening, trained.T).T
        means = class_means(embeddings, session.labels, session.classes)
        if settings.rows == "blend":
            return (means + F.normalize(trained, dim=1) * means.norm(dim=1, keepdim=True)) / 2
        return means if settings.rows == "means" else trained

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
        self.network.rows.data = self.base_rows(self.network, session)

    def classify(self, embeddings: Tensor) -> Tensor:
        return cosine_logits(embeddings, self.network.rows.detach(), self.settings.scale)
