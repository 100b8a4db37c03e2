"""FACT: base training that leaves room for classes to come (Zhou et al., "Forward Compatible Few-Shot Class-Incremental
Learning", CVPR 2022).

Beside the rows W of the base classes, V virtual prototypes P_v are trained. An image belongs to its class first and to
a virtual class second; a mixture of two images, standing for a class to come, to a virtual class first and to a base
class second. Both push base classes together and keep space for new ones. New rows are class means; answers also go by
way of the virtual prototypes (calibrators/virtual.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil import distributed
from fscil.benchmark import Session
from fscil.calibrators import Virtual
from fscil.engine.stage import Batch
from fscil.errors import UserError
from fscil.methods.method import Method
from fscil.methods.pretrain import Objective, PretrainSettings, new_model, pretrain
from fscil.methods.prototypes import class_means
from fscil.model import Model
from fscil.settings import setting

AUTHORS = "the authors' code"


@dataclass(frozen=True)
class FactSettings(PretrainSettings):
    virtual: int = setting(
        0,
        "V, virtual prototypes; 0: as many as classes are to come, or as base classes where that is unknown",
        origin="the paper's",
        least=0,
        most=2**16,
    )
    gamma: float = setting(0.01, "weight of all terms but the first", origin=AUTHORS, least=0, most=1000)
    alpha: float = setting(
        0.5, "mixtures' share of either image is drawn from Beta(alpha, alpha)", origin=AUTHORS, least=0.01, most=1000
    )
    eta: float = setting(0.1, "weight of answers by way of virtual prototypes", origin=AUTHORS, least=0, most=1)


class Fact(Method):
    """Base training that leaves room for classes to come."""

    Settings: ClassVar[type] = FactSettings
    settings: FactSettings
    to_come: int = 0  # classes of the few-shot sessions; 0: unknown

    @classmethod
    def own_training(cls, settings: Any) -> bool:
        return True

    def check_sessions(self, sessions: Sequence[Session]) -> None:
        self.to_come = sum(len(session.classes) for session in sessions[1:])
        if distributed.world_size() > 1:
            raise UserError("fact mixes images of a whole step, so it trains in one process; start it without torchrun")

    def learn_base(self, session: Session) -> None:
        settings = self.settings
        model = new_model(session, settings, self.context)
        if not model.encoder.has_halves:
            raise UserError(f"encoder {settings.encoder} cannot be cut in two, which FACT needs; choose another one")
        V = settings.virtual or self.to_come or len(session.classes)
        model.set_calibrator("virtual", virtual=V, scale=settings.scale, eta=settings.eta)
        beta = torch.tensor(settings.alpha, device=self.engine.device)
        share = torch.distributions.Beta(beta, beta, validate_args=False)  # validation would make the host wait

        def forward(model: Model, images: Tensor) -> tuple[Tensor, Tensor]:
            """h(x), features of the middle layer, and phi(x) = g(h(x))"""
            h = model.encoder.first(images)
            return h, model.encoder.second(h)

        def loss(model: Model, outputs: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
            (h, embeddings), y = outputs, batch["labels"]
            # z = g(lambda h(x_i) + (1 - lambda) h(x_j)); batches are shuffled, so j may be the neighbour
            lam = share.sample()
            z = model.encoder.second(lam * h + (1 - lam) * h.roll(1, 0))
            f, f_z = scores(model, embeddings), scores(model, z)
            real = reserving_loss(f, y, len(session.classes))
            mixed = forecasting_loss(f_z, y != y.roll(1), len(session.classes))
            return F.cross_entropy(f, y) + settings.gamma * (real + mixed)

        objective = Objective("fact", forward, loss)
        self.model = pretrain(session, settings, self.context, start=model, objective=objective)
        self.model.rows.data = self.means(session)

    def learn_session(self, session: Session) -> None:
        self.model.add_rows(self.means(session))

    def means(self, session: Session) -> Tensor:
        return class_means(self.embed(session.images), session.labels, session.classes)


def scores(model: Model, embeddings: Tensor) -> Tensor:
    """f_v(x) = [W, P_v] phi(x) as scaled cosines: [n, B + V]"""
    calibrator = cast(Virtual, model.calibrator)
    return calibrator.cosines(embeddings, torch.cat([model.rows, calibrator.prototypes]))


def masked(f: Tensor, y: Tensor) -> Tensor:
    """Mask(f, y): without the score of class y [n], the others as they are."""
    return f.scatter(1, y[:, None], -torch.inf)


def reserving_loss(f: Tensor, y: Tensor, base: int) -> Tensor:
    """l(Mask(f_v(x), y), y^): after its own class, an image is nearest to virtual class y^, the best of them now."""
    virtual = base + f[:, base:].argmax(1)
    return F.cross_entropy(masked(f, y), virtual)


def forecasting_loss(f: Tensor, valid: Tensor, base: int) -> Tensor:
    """l(f_v(z), y^) + l(Mask(f_v(z), y^), y^^): a mixture is of virtual class y^, and after that of base class y^^.

    Args:
        f: scores of mixtures [n, B + V]
        valid: bool [n]; mixtures of a class with itself do not count
    """
    virtual, known = base + f[:, base:].argmax(1), f[:, :base].argmax(1)
    of_each = F.cross_entropy(f, virtual, reduction="none")
    of_each = of_each + F.cross_entropy(masked(f, virtual), known, reduction="none")
    return (of_each * valid).sum() / valid.sum().clamp(min=1)
