"""Prototypes: class means as classifier rows, and optional transformations of the embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.benchmark import Session
from fscil.errors import CannotLearn, UserError
from fscil.methods.method import Method
from fscil.model import Model
from fscil.model import as_prototypes as as_prototypes
from fscil.settings import setting

POWER = "exponent applied to features; 1 in the paper, less evens out the few strong ones, which helps new classes"
MIRROR = "embed an image together with its mirror image, at twice the time; not in the paper"
SHIFT = (
    "embed an image as the mean of two copies, moved by this many pixels towards two opposite corners, at twice the "
    "time; 0, as in the paper, does not"
)
WHITEN = (
    "divide embeddings by the root of the covariance within base classes, with this many times its mean variance "
    "added; 0, as in the paper, leaves them as they are"
)

BEYOND_WHITENING = "embeddings are too large or too small to be whitened; set whiten=0, or lower power"


@dataclass(frozen=True)
class EmbeddingSettings:
    rows: str = setting(
        "means",
        "of base classes: class means, comparable with prototypes, or the trained rows",
        choices=("means", "trained"),
    )
    power: float = setting(1.0, POWER, least=0.01, most=10)
    mirror: bool = setting(False, MIRROR)
    shift: int = setting(0, SHIFT, least=0, most=32)
    whiten: float = setting(0.0, WHITEN, least=0, most=1e6)


class PrototypeMethod(Method):
    """What methods with a fixed encoder share: a new class's row is its prototype, the mean of its few embeddings."""

    settings: EmbeddingSettings

    def check_sessions(self, sessions: Sequence[Session]) -> None:
        """Refuse shifts that leave nothing of an image."""
        size = min(sessions[0].images.shape[-2:])
        if self.settings.shift >= size:
            raise UserError(f"shift={self.settings.shift} moves images of {size} pixels out of sight; lower it")

    def base_rows(self, model: Model, session: Session, kind: str) -> Tensor:
        """Set how the model embeds images; returns the base classes' means or trained rows for it, [classes, d]."""
        settings, trained = self.settings, model.rows.detach().clone()
        model.power, model.mirror, model.shift = settings.power, settings.mirror, settings.shift
        if kind == "trained" and settings.whiten == 0:
            return trained
        embeddings = model.embed(session.images)
        if not embeddings.isfinite().all():
            raise CannotLearn("embeddings of base images are not finite numbers; lower lr, weight_decay or power")
        if settings.whiten > 0:
            try:
                model.whitening.copy_(whitening(embeddings, session.labels, settings.whiten))
                embeddings = embeddings @ model.whitening
                # a row is applied to embeddings, so it is multiplied by the inverse of their transformation
                trained = torch.linalg.solve(model.whitening, trained.T).T
            except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
                raise CannotLearn(BEYOND_WHITENING) from error
        return class_means(embeddings, session.labels, session.classes) if kind == "means" else trained

    def learn_session(self, session: Session) -> None:
        """[W, p_j for j in Y_b]: the classifier is augmented with prototypes, without a gradient step."""
        self.model.add_rows(self.prototypes(class_means(self.embed(session.images), session.labels, session.classes)))

    def prototypes(self, means: Tensor) -> Tensor:
        return as_prototypes(means, self.model)


def class_means(embeddings: Tensor, labels: Tensor, classes: tuple[int, ...]) -> Tensor:
    """Eq. (prototype): the mean embedding of each class, [classes, d], however many images each has."""
    return torch.stack([embeddings[labels == label].mean(0) for label in classes])


def whitening(embeddings: Tensor, labels: Tensor, shrinkage: float) -> Tensor:
    """A [d, d]: (S + shrinkage * mean variance * I)^(-1/2), rotated and scaled, where S is the within-class covariance.

    Embeddings times A vary about equally in all directions within a class; the less S is shrunk, the more so. The
    rotation and scale of A do not affect cosines, but they do affect calibration: layer normalisation subtracts the
    mean over coordinates, so the rotation puts that direction where class means have little or, if there are fewer than
    d, almost no component; the scale keeps the mean length of embeddings.
    """
    S = torch.zeros(embeddings.shape[1], embeddings.shape[1], dtype=torch.float64)
    means = []
    for label in labels.unique():
        own = embeddings[labels == label].double()
        means.append(own.mean(0).cpu())
        S += ((own - own.mean(0)).T @ (own - own.mean(0))).cpu() / len(embeddings)
    variances, directions = torch.linalg.eigh(S)
    if variances.mean() <= 0:
        raise CannotLearn("whiten needs base classes with two different images or more; set whiten=0")
    if (variances + shrinkage * variances.mean()).min() < 1e-12 * variances.mean():  # of rounding, as where S is 0
        raise CannotLearn(f"whiten={shrinkage:g} would divide by a variance of about 0; raise it, or set whiten=0")
    A = directions * (variances + shrinkage * variances.mean()).rsqrt() @ directions.T
    M, ones = torch.stack(means) @ A, torch.ones(len(A), dtype=A.dtype)
    # Few class means leave many directions free: take the one nearest to the all-ones vector, or rounding would choose.
    least = torch.linalg.solve(M.T @ M + 1e-6 * M.square().sum() / len(A) * torch.eye(len(A)), ones)
    A = (A @ reflection(least, ones)).to(embeddings)
    A = A * (embeddings.norm(dim=1).mean() / (embeddings @ A).norm(dim=1).mean())
    if not A.isfinite().all():
        raise CannotLearn(BEYOND_WHITENING)
    return A


def reflection(a: Tensor, b: Tensor) -> Tensor:
    """The Householder matrix [d, d] that turns the direction of a into that of b."""
    v = F.normalize(F.normalize(a, dim=0) - F.normalize(b, dim=0), dim=0)
    return torch.eye(len(a)).to(a) - 2 * torch.outer(v, v)
