"""Method: learns sessions through learn_base and learn_session. What it learns is a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fscil import model as models
from fscil.benchmark import Session
from fscil.engine import Engine
from fscil.images import Images
from fscil.methods.memory import Memory
from fscil.model import Model, ModelSpec


@dataclass(frozen=True)
class Context:
    """What a method may know besides its sessions."""

    engine: Engine
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class Method(ABC):
    """Learns a base session, then few-shot sessions one by one; classifies among all classes seen so far.

    All that it remembers is its state: the model, the exemplars that its memory allows, and further tensors by name.
    A session's images are gone when the next one arrives, and parameters that it froze are no longer frozen.
    """

    Settings: ClassVar[type]
    fixed_encoder: ClassVar[bool] = True  # embeddings stay valid over all few-shot sessions
    model: Model

    def __init__(self, settings: Any, context: Context) -> None:
        self.settings, self.context, self.engine = settings, context, context.engine
        self.memory = Memory(getattr(settings, "memory", "none"))
        self.tensors: dict[str, Tensor] = {}  # other tensors that must outlive a session, by name
        self.notes: list[str] = []  # what a reader of the result should know about this run

    @classmethod
    def own_training(cls, settings: Any) -> bool:
        """Whether, with these settings, its encoders come from another training than the one that methods share."""
        return False

    def check_sessions(self, sessions: Sequence[Session]) -> None:  # noqa: B027
        """Refuse sessions that cannot be learned, before the first one, the base session, is learned.

        They are only announced: their classes, labels and sizes are known, their images are not.
        """

    @abstractmethod
    def learn_base(self, session: Session) -> None:
        """Learn the classes with plenty of images; this must set self.model."""

    @abstractmethod
    def learn_session(self, session: Session) -> None:
        """Learn the classes of a few-shot session; session.classes continue the labels seen so far."""

    def embed(self, images: Images) -> Tensor:
        """uint8 images [n, 3, h, w] -> embeddings [n, d]"""
        return self.model.embed(images)

    def classify(self, embeddings: Tensor) -> Tensor:
        """embeddings [n, d] -> logits [n, classes seen so far], in order of arrival"""
        return self.model.classify(embeddings)

    def logits(self, images: Images) -> Tensor:
        """uint8 images [n, 3, h, w] -> logits [n, classes seen so far], in order of arrival"""
        return self.classify(self.embed(images))

    def training_only_parameters(self) -> int:
        """Numbers that later sessions learn with and answers do not need, such as TOPIC's nodes (images: exemplars)."""
        return sum(tensor.numel() for tensor in self.tensors.values() if tensor.is_floating_point())

    # -- what a checkpoint holds ---------------------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        more = {f"tensors.{name}": tensor.detach().clone() for name, tensor in self.tensors.items()}
        return {**self.model.state_dict(), **self.memory.state(), **more}

    def load_state(self, spec: ModelSpec, tensors: Mapping[str, Tensor]) -> None:
        """Restore a state, possibly into a new object."""
        device, kept = self.engine.device, dict(tensors)
        more = [name for name in tensors if name.startswith("tensors.")]
        self.tensors = {name.removeprefix("tensors."): kept.pop(name).to(device, copy=True) for name in more}
        self.memory.load_state({name: kept.pop(name) for name in tensors if name.startswith("memory.")}, device)
        self.model = models.build(spec, len(kept["rows"]))
        self.model.load_state_dict(kept)
        self.model.to(device).eval()
        self.model.encoder.autocast = self.engine.bfloat16
