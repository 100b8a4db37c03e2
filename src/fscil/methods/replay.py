"""What methods share that keep training in few-shot sessions: new rows, exemplars, frozen layers, distillation.

The settings' defaults are TOPIC's practice (Tao et al., 2020), whose tables the paper copies: all shots and exemplars
are one batch, and most layers are frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil import distributed
from fscil.benchmark import Session
from fscil.engine import seed_for
from fscil.engine.schedule import decay_at
from fscil.engine.stage import Batch, ParameterGroup
from fscil.methods.method import Method
from fscil.methods.pretrain import COSINE, HIGHEST_RATE, Objective, PretrainSettings, build_augmentation, pretrain
from fscil.methods.prototypes import class_means
from fscil.methods.training import MOST_STEPS, Batches, Forward, Loss, check_steps, train
from fscil.model import Model
from fscil.settings import setting

WEIGHT: dict[str, Any] = {"least": 0, "most": 1e6}  # of a loss


@dataclass(frozen=True)
class SessionSettings(PretrainSettings):
    session_epochs: int = setting(
        70, "TOPIC's number for CIFAR100; all shots of a session are one batch", least=1, most=MOST_STEPS
    )
    session_lr: float = setting(0.1, "TOPIC's", least=0, most=HIGHEST_RATE)
    session_decay_epoch: int = setting(60, "TOPIC's: the learning rate falls to a tenth", least=0, most=MOST_STEPS)
    head: str = setting(
        "linear",
        "linear: row . f / |f|, in which the rows of new classes grow from 0; cosine: scale * cos(row, f)",
        origin="TOPIC's",
        choices=("linear", "cosine"),
    )


@dataclass(frozen=True)
class ReplaySettings(SessionSettings):
    memory: str = setting(
        "400+1/class", "exemplars: none, N/class, N in all, N of base classes + M/class of new ones, or all",
        origin="TOPIC's",
    )  # fmt: skip
    exemplars: str = setting(
        "random", "how they are chosen; herding is iCaRL's", origin="TOPIC's", choices=("random", "herding")
    )
    session_batch: int = setting(
        0, "images per step in few-shot sessions; 0: all shots and exemplars", origin="TOPIC's", least=0, most=1_000_000
    )
    trained: str = setting(
        "last-block",
        "layers that few-shot sessions train: the encoder's last block or all of it, and the rows",
        origin="TOPIC's",
        choices=("last-block", "all"),
    )
    old_rows: str = setting("trained", "rows of old classes in few-shot sessions", choices=("trained", "fixed"))
    statistics: str = setting(
        "batch",
        "what normalises activations in few-shot sessions: each batch, or the averages of pre-training",
        choices=("batch", "global"),
    )
    new_rows: str = setting(
        "random",
        "where rows of new classes start: N(0, 0.001) or, imprinted, the mean of the class's embeddings",
        origin="TOPIC's",
        choices=("random", "imprinted"),
    )


class SessionMethod(Method):
    """Trains its network in every session; all that it sees of a session are its images and the exemplars."""

    fixed_encoder: ClassVar[bool] = False
    settings: SessionSettings

    def check_sessions(self, sessions: Sequence[Session]) -> None:
        for session in sessions[1:]:
            check_session(session)

    def learn_base(self, session: Session) -> None:
        self.model = pretrain(session, self.settings, self.context, objective=self.objective())
        if self.settings.head == "linear":  # the same logits as those of pre-training
            self.model.rows.data = self.settings.scale * F.normalize(self.model.rows.data, dim=1)
            self.model.set_calibrator("linear")

    def objective(self) -> Objective:
        """Of base training."""
        return COSINE

    def add_random_rows(self, session: Session, name: str) -> None:
        """N(0, 0.001), as TOPIC's"""
        torch.manual_seed(seed_for(self.engine.seed, name))
        self.model.add_rows(torch.randn(len(session.classes), self.model.encoder.dim) * 1e-3)

    def train_session(
        self,
        name: str,
        session: Session,
        forward: Forward,
        loss: Loss,
        *,
        batch: int = 0,
        epochs: int | None = None,
        lr: float | None = None,
        module: nn.Module | None = None,
        groups: Sequence[ParameterGroup] = (),
    ) -> None:
        """Train what requires gradients; module and groups are the model and its parameters unless given."""
        settings, model = self.settings, self.model
        session = replace(session, images=session.images[:])  # the same few images in every epoch, so read them once
        data = Batches(
            session,
            min(batch or len(session.labels), len(session.labels)),
            settings.session_epochs if epochs is None else epochs,
            build_augmentation(settings, "basic", model),
            self.engine,
            name,
            merge=True,
        )
        check_steps(data.steps)
        learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
        train(
            self.engine,
            name,
            module or model,
            data,
            forward=forward,
            loss=loss,
            groups=[ParameterGroup(learning, settings.session_lr if lr is None else lr), *groups],
            schedule=decay_at([settings.session_decay_epoch * data.steps_of_epoch]),
            sgd=settings.sgd,
        )


class ReplayMethod(SessionMethod):
    """Trains with exemplars of earlier sessions. Between `begin` and `end` of a session only some layers learn."""

    settings: ReplaySettings

    def check_sessions(self, sessions: Sequence[Session]) -> None:
        for session in sessions[1:]:
            check_session(session, self.settings.session_batch)

    def learn_base(self, session: Session) -> None:
        super().learn_base(session)
        self.remember(session)

    def begin(self, session: Session, name: str) -> Model:
        """Add rows for the new classes, and freeze what does not learn; returns the teacher, the network before it."""
        settings, model = self.settings, self.model
        teacher = model.frozen_copy()
        if settings.new_rows == "random":
            self.add_random_rows(session, name)
        else:
            model.add_rows(imprinted(model, session))
        model.requires_grad_(settings.trained == "all")
        for part in (model.rows, last_block(model.encoder.backbone), model.calibrator):
            part.requires_grad_(True)
        self.set_mode()
        return teacher

    def set_mode(self) -> None:
        """Of training; embedding images, which ends in one mode for all layers, must be followed by this."""
        self.model.train()
        if self.settings.statistics == "global":
            for module in self.model.encoder.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()

    def head(self, teacher: Model) -> Tensor:
        """The rows that a loss may use, [classes, d]; those of old classes are constant if they are fixed."""
        rows = self.model.rows
        return torch.cat([teacher.rows, rows[len(teacher.rows) :]]) if self.settings.old_rows == "fixed" else rows

    def end(self, session: Session, teacher: Model) -> None:
        with torch.no_grad():
            self.model.rows.copy_(self.head(teacher))  # weight decay has shrunk fixed rows, too
        self.model.requires_grad_(True).eval()
        self.remember(session)

    def remember(self, session: Session) -> None:
        """Keep exemplars of the session: drawn at random, or by herding."""
        if self.settings.exemplars == "herding":
            seen, images = max(session.classes) + 1, len(session.labels)
            quotas = [self.memory.quota(label, seen) for label in session.classes]
            most = max(images if quota is None else quota for quota in quotas)
            ranking = herded(self.embed(session.images), session, most)
        else:
            generator = torch.Generator().manual_seed(seed_for(self.engine.seed, "exemplars", session.classes[0]))
            ranking = torch.randperm(len(session.labels), generator=generator)
        self.memory.keep(session, ranking)


def both(model: Model, teacher: Model) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """A forward: embeddings of the network that learns and of its teacher, [n, d] each"""
    return lambda images: (model.encoder(images), teacher.encoder(images))


def check_session(session: Session, batch: int = 0) -> None:
    """Check that steps can be sharded; exemplars only make them larger."""
    remedy = "raise way or shot" + (" or session_batch" if batch else ", since all shots of a session are one step")
    images = len(session.labels)
    distributed.check_step_size(min(batch or images, images), "a step of a session" if batch else "a session", remedy)


def imprinted(model: Model, session: Session) -> Tensor:
    """LUCIR's start: the mean normalised embedding of each class, as long as old rows are on average, [ways, d]"""
    embeddings = F.normalize(model.embed(session.images), dim=1)
    means = F.normalize(class_means(embeddings, session.labels, session.classes), dim=1)
    return means * model.rows.detach().norm(dim=1).mean()


def last_block(backbone: nn.Module) -> nn.Module:
    """The last residual block, or what comes nearest: the last part with weights (not norms and biases alone)."""
    found = backbone
    while found is backbone or isinstance(found, nn.Sequential):
        parts = [child for child in found.children() if any(weight.ndim > 1 for weight in child.parameters())]
        if not parts:
            break
        found = parts[-1]
    return found


# -- losses of a step; `which` [n] says which of its images count ----------------------------------------------------
def mean_over(losses: Tensor, which: Tensor) -> Tensor:
    """The mean of the losses [n] over the images that count; 0 if there is none."""
    weights = which.to(losses.dtype)
    return (losses * weights).sum() / weights.sum().clamp(min=1)


def cross_entropy(logits: Tensor, batch: Batch, which: Tensor) -> Tensor:
    return mean_over(F.cross_entropy(logits, batch["labels"], reduction="none"), which)


def distillation(logits: Tensor, taught: Tensor, temperature: float, which: Tensor) -> Tensor:
    """L_KD: cross-entropy between softened answers of the teacher and of the network, [n, old classes] each."""
    targets = (taught / temperature).softmax(1)
    return mean_over(-(targets * (logits / temperature).log_softmax(1)).sum(1), which)


# -- herding -----------------------------------------------------------------------------------------------------------
def herded(embeddings: Tensor, session: Session, most: int) -> Tensor:
    """The session's images, the best exemplars of each class first, at most so many of a class: int64 [n]"""
    ranking = []
    for label in session.classes:
        own = torch.nonzero(session.labels == label).flatten()
        ranking.append(own[herding(F.normalize(embeddings[own], dim=1), min(most, len(own)))])
    return torch.cat(ranking)


def herding(features: Tensor, most: int) -> Tensor:
    """iCaRL's Algorithm 4: p_k brings the mean of p_1 .. p_k nearest to the class mean mu; [n, d] -> int64 [most]"""
    mu, total = features.mean(0), torch.zeros_like(features[0])
    chosen = torch.empty(0, dtype=torch.int64, device=features.device)
    for k in range(1, most + 1):
        distances = (mu - (total + features) / k).square().sum(1)
        p = distances.index_fill(0, chosen, torch.inf).argmin()  # an image is an exemplar once
        chosen = torch.cat([chosen, p[None]])
        total = total + features[p]
    return chosen
