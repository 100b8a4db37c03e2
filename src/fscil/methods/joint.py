"""Joint training: trained afresh on all images seen so far, which no incremental learner may keep; the upper bound.

New classes have five images where base classes have hundreds, so it is a bound for methods, not for accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fscil.benchmark import Session
from fscil.methods.method import Method
from fscil.methods.pretrain import PretrainSettings, pretrain
from fscil.methods.prototypes import class_means
from fscil.settings import setting

NOTE = (
    "joint training on all images seen so far in the first and the last session; those between are answered by class "
    "means on the base encoder (joint_sessions=all trains in each)"
)


@dataclass(frozen=True)
class JointSettings(PretrainSettings):
    memory: str = setting("all", "joint training keeps every image", choices=("all",))
    joint_sessions: str = setting(
        "last",
        "sessions after which everything is trained afresh: the last one, or all, each as long as pre-training; before "
        "the last, class means on the base encoder answer",
        choices=("last", "all"),
    )
    rows: str = setting(
        "trained", "of a jointly trained model: as trained, or class means", choices=("trained", "means")
    )


class Joint(Method):
    """Trained afresh on all images so far: the upper bound."""

    Settings: ClassVar[type] = JointSettings
    fixed_encoder: ClassVar[bool] = False
    settings: JointSettings
    classes: int = 0  # of the whole stream, whose last session is trained; 0: any session may be the last

    @classmethod
    def own_training(cls, settings: Any) -> bool:
        return True

    def check_sessions(self, sessions: Sequence[Session]) -> None:
        self.classes = sum(len(session.classes) for session in sessions)

    def learn_base(self, session: Session) -> None:
        if self.settings.joint_sessions == "last" and self.classes > len(session.classes):
            self.notes.append(NOTE)
        self.train_on(session, "pretrain", base=len(session.classes))
        self.memory.keep(session)

    def learn_session(self, session: Session) -> None:
        everything = self.memory.joined(session)
        base, margin = int(self.model.base.sum()), self.model.base_margin
        if self.settings.joint_sessions == "all" or len(everything.classes) >= self.classes:
            self.train_on(everything, f"joint-{session.classes[0]}", base)
            self.model.base_margin = margin
        else:
            self.model.add_rows(torch.zeros(len(session.classes), self.model.row_size))
            self.model.rows.data = self.means(everything)
        self.memory.keep(session)

    def train_on(self, session: Session, name: str, base: int) -> None:
        self.model = pretrain(session, self.settings, self.context, name=name)
        self.model.base = torch.arange(len(session.classes), device=self.model.base.device) < base
        if self.settings.rows == "means":
            self.model.rows.data = self.means(session)

    def means(self, session: Session) -> torch.Tensor:
        return class_means(self.embed(session.images), session.labels, session.classes)
