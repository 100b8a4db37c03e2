"""Method: a learner of sessions, in three verbs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from fscil.benchmark import Session
from fscil.engine import Engine
from fscil.images import Images


@dataclass(frozen=True)
class Context:
    """What a method may know about the world besides its sessions."""

    engine: Engine
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    data_checksum: str  # identifies the base session, for the cache of encoders


class Method(ABC):
    """Learns a base session, then few-shot sessions one by one; classifies among all classes seen so far."""

    Settings: ClassVar[type]
    exemplars_per_class: ClassVar[int] = 0  # declared memory of earlier sessions
    fixed_encoder: ClassVar[bool] = True  # embeddings stay valid over all few-shot sessions

    def __init__(self, settings: Any, context: Context) -> None:
        self.settings, self.context, self.engine = settings, context, context.engine
        self.network: nn.Module = nn.Module()  # all state, as plain tensors

    def check_sessions(self, sessions: Sequence[Session]) -> None:  # noqa: B027
        """Refuse sessions that cannot be learned, before the first of them, the base session, is."""

    @abstractmethod
    def learn_base(self, session: Session) -> None:
        """Learn the classes with plenty of images."""

    @abstractmethod
    def learn_session(self, session: Session) -> None:
        """Learn the classes of a few-shot session; session.classes continue the labels seen so far."""

    @abstractmethod
    def embed(self, images: Images) -> Tensor:
        """uint8 images [n, 3, h, w] -> embeddings [n, d]"""

    @abstractmethod
    def classify(self, embeddings: Tensor) -> Tensor:
        """embeddings [n, d] -> logits [n, classes seen so far], in order of arrival"""

    def logits(self, images: Images) -> Tensor:
        """uint8 images [n, 3, h, w] -> logits [n, classes seen so far], in order of arrival"""
        return self.classify(self.embed(images))

    def state(self) -> dict[str, Tensor]:
        return dict(self.network.state_dict())

    def training_only_parameters(self) -> int:
        """Parameters that training needs and inference does not."""
        return 0
