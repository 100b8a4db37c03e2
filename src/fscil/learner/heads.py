"""Heads: what is made of a fixed encoder's features, from plain class means to whitened ones beside trained rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

from fscil import calibrators
from fscil.images import Images
from fscil.learner.sources import SCALE
from fscil.methods.prototypes import class_means, whitening
from fscil.model import Model
from fscil.progress import stage_progress

AT_ONCE = 64  # photos between two looks at the progress bar
REGULAR = 10.0  # inverse strength of the linear probe's penalty, on features of length 1
MOST_WORK = 3e6  # photos times classes; with more, a linear probe takes minutes and is left out


@dataclass(frozen=True)
class Photos:
    """Photos as the encoder sees them, [n, d] each: embeddings before whitening, and the mean of unit features."""

    embeddings: Tensor
    features: Tensor
    labels: Tensor  # int64 [n]

    def __len__(self) -> int:
        return len(self.labels)

    def where(self, index: Tensor) -> Photos:
        return Photos(self.embeddings[index], self.features[index], self.labels[index])

    def of(self, classes: Sequence[int]) -> Photos:
        """Those of some classes, which are numbered anew in this order."""
        number = torch.full((int(self.labels.max()) + 1 if len(self) else 0,), -1)
        number[list(classes)] = torch.arange(len(classes))
        here = number[self.labels] >= 0
        return replace(self.where(here), labels=number[self.labels[here]])


def photos_of(model: Model, images: Images, labels: Tensor, console: Console, name: str = "embed photos") -> Photos:
    """Embed every photo once; whatever whitening the model comes with is part of its embeddings."""
    embeddings, features = [], []
    with stage_progress(console, name, len(images)) as progress:
        for batch in images.split(AT_ONCE):
            views = [model.encoder.embed_here(view) for view in model.views(batch)]
            raised = sum((model._raise(view) for view in views[1:]), model._raise(views[0])) / len(views)
            embeddings.append((raised @ model.whitening).cpu())
            plain = [F.normalize(view, dim=1) for view in views]
            features.append((sum(plain[1:], plain[0]) / len(plain)).cpu())
            progress.update(sum(map(len, features)))
    return Photos(torch.cat(embeddings), torch.cat(features), labels)


@dataclass(frozen=True)
class Head:
    """How strongly embeddings are whitened (0: not; more: less) and trained rows are trusted among base classes."""

    whiten: float = 0.0
    trust: float = 0.0

    def __str__(self) -> str:
        means = f"whitened class means ({self.whiten:g})" if self.whiten else "class means"
        return f"{means} with trained rows ({self.trust:g})" if self.trust else means


@dataclass(frozen=True)
class Learned:
    """A head that has learned base classes: whitening [d, d], their rows, and what scores them."""

    whitening: Tensor
    rows: Tensor
    kind: str  # of the calibrator: cosine, paired or transformer
    calibrator: calibrators.Calibrator

    def queries(self, photos: Photos) -> Tensor:
        embeddings = photos.embeddings @ self.whitening
        return torch.cat([embeddings, photos.features], 1) if self.calibrator.two_inputs else embeddings

    def taught(self, photos: Photos, classes: int) -> Tensor:
        """Rows of further classes, numbered from 0; they have no trained row."""
        means = class_means(photos.embeddings @ self.whitening, photos.labels, tuple(range(classes)))
        return F.pad(means, (0, means.shape[1])) if self.calibrator.two_inputs else means

    def logits(self, photos: Photos, more: Tensor | None = None) -> Tensor:
        rows = self.rows if more is None else torch.cat([self.rows, more])
        return self.calibrator.predict(rows, self.queries(photos))


def learn(heads: Sequence[Head], photos: Photos, classes: int, trained: Tensor | None = None) -> list[Learned]:
    """What each head learns from photos of classes 0 .. classes - 1. trained: rows [classes, d] that apply to features;
    None: those of a linear probe, if any head wants them."""
    d = photos.embeddings.shape[1]
    whitenings = {0.0: torch.eye(d)}
    for strength in {head.whiten for head in heads} - {0.0}:
        whitenings[strength] = whitening(photos.embeddings, photos.labels, strength)
    if trained is None and any(head.trust for head in heads):
        trained = linear_probe(photos, classes)
    found = []
    for head in heads:
        A = whitenings[head.whiten]
        rows = class_means(photos.embeddings @ A, photos.labels, tuple(range(classes)))
        if head.trust:
            assert trained is not None
            calibrator = calibrators.build("paired", d, scale=SCALE, trust=head.trust)
            found.append(Learned(A, torch.cat([rows, trained], 1), "paired", calibrator))
        else:
            found.append(Learned(A, rows, "cosine", calibrators.build("cosine", d, scale=SCALE)))
    return found


def linear_probe(photos: Photos, classes: int) -> Tensor:
    """Rows [classes, d] of a logistic regression on features, without intercepts, which new classes would not have."""
    from sklearn.linear_model import LogisticRegression  # takes a second to import

    probe = LogisticRegression(C=REGULAR, fit_intercept=False, max_iter=1000)
    probe.fit(photos.features.numpy(), photos.labels.numpy())
    rows = torch.from_numpy(probe.coef_).float()
    if classes == 2 and len(rows) == 1:
        rows = torch.cat([-rows, rows])
    return rows


def can_probe(photos: int, classes: int) -> bool:
    return photos * classes <= MOST_WORK
