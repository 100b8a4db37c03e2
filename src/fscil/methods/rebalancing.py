"""Rebalancing: LUCIR, a unified classifier by cosines that forgets less (Hou et al., 2019).

The paper's row is TOPIC's form of it (Tao et al., 2020): cross-entropy of the shots, and exemplars whose features must
not turn. That is the default; the preset rebalancing-original has the method of its own paper: a learned scale of the
cosines, the less-forget loss weighted by the number of classes, the margin ranking loss, imprinted rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.benchmark import Session
from fscil.engine.stage import Batch
from fscil.methods.replay import WEIGHT, ReplayMethod, ReplaySettings, both, cross_entropy, mean_over
from fscil.settings import setting


@dataclass(frozen=True)
class RebalancingSettings(ReplaySettings):
    loss: str = setting(
        "topic",
        "topic: CE of the shots + less_forget * (1 - cos) of the exemplars; lucir: CE + less_forget * sqrt(old / new "
        "classes) * (1 - cos) of all images + ranking * the margin ranking loss of the exemplars, with a learned scale",
        choices=("topic", "lucir"),
    )
    old_rows: str = setting(
        "fixed", "rows of old classes in few-shot sessions", origin="TOPIC's", choices=("trained", "fixed")
    )
    less_forget: float = setting(50.0, "lambda; LUCIR's lambda_base is 5", origin="TOPIC's", **WEIGHT)
    ranking: float = setting(1.0, "weight of the margin ranking loss in loss=lucir", origin="LUCIR's", **WEIGHT)
    negatives: int = setting(2, "K: new classes that it compares with", origin="LUCIR's", least=1, most=1000)
    ranking_margin: float = setting(0.5, "m: by which the true class must win", origin="LUCIR's", least=0, most=2)


class Rebalancing(ReplayMethod):
    """LUCIR: features that must not turn, margins to new rows"""

    Settings: ClassVar[type] = RebalancingSettings
    settings: RebalancingSettings

    def learn_base(self, session: Session) -> None:
        super().learn_base(session)
        if self.settings.loss == "lucir":
            self.model.set_calibrator("learned-scale", scale=self.settings.scale)

    def learn_session(self, session: Session) -> None:
        settings, name, joined = self.settings, f"rebalancing-{session.classes[0]}", self.memory.joined(session)
        teacher = self.begin(session, name)
        model = self.model

        def loss(outputs: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
            features, before = outputs
            rows, old = self.head(teacher), len(teacher.rows)
            logits, is_new = model.calibrator(rows, features), batch["labels"] >= old
            turned = 1 - F.cosine_similarity(features, before, dim=1)
            if settings.loss == "topic":
                return cross_entropy(logits, batch, is_new) + settings.less_forget * mean_over(turned, ~is_new)
            strength = settings.less_forget * math.sqrt(old / (len(rows) - old))
            cosines = F.normalize(features, dim=1) @ F.normalize(rows, dim=1).T
            ranked = margin_ranking(cosines, batch["labels"], old, settings.negatives, settings.ranking_margin)
            every = torch.ones_like(is_new)
            return cross_entropy(logits, batch, every) + strength * turned.mean() + settings.ranking * ranked

        self.train_session(name, joined, both(model, teacher), loss, batch=settings.session_batch)
        self.end(session, teacher)


def margin_ranking(cosines: Tensor, labels: Tensor, old: int, K: int, margin: float) -> Tensor:
    """L_mr, LUCIR's Eq. (8): sum over k of max(m - <theta(x), f(x)> + <theta^k, f(x)>, 0), mean over the exemplars x

    cosines [n, classes]; theta(x) is the row of x's class, and theta^k are the K new rows nearest to f(x).
    """
    own = cosines.gather(1, labels[:, None])
    nearest = cosines[:, old:].topk(min(K, cosines.shape[1] - old), dim=1).values
    return mean_over((margin - own + nearest).clamp(min=0).sum(1), labels < old)
