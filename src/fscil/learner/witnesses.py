"""Witnesses: photos of base classes by which confidence and unknown are measured, as if they had not been trained on.

The model that is kept has learned all photos, so it finds each of them more like its class than it would find another
photo. What a photo looks like to a model that has not learned it was measured when it was held out: its embedding is
changed by as little as gives the kept model's rows those same cosines.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.learner.heads import Learned, Photos


def cosines_of(learned: Learned, photos: Photos) -> tuple[Tensor, Tensor | None]:
    """To the classes' means [n, classes], and to their trained rows where there are any.

    A class without a trained row gets the cosine to one that would change nothing: what paired adds to the best base
    class, over trust.
    """
    d = photos.embeddings.shape[1]
    means = F.normalize(learned.rows[:, :d], dim=1)
    to_means = F.normalize(photos.embeddings @ learned.whitening, dim=1) @ means.T
    if not learned.calibrator.two_inputs:
        return to_means, None
    trained = F.normalize(learned.rows[:, d:], dim=1)
    has_row, trust = trained.square().sum(1) > 0, learned.calibrator.options["trust"]
    to_trained = photos.features @ trained.T
    informed = (to_means + trust * to_trained)[:, has_row].amax(1) - to_means[:, has_row].amax(1)
    return to_means, torch.where(has_row, to_trained, informed[:, None] / trust)


def as_unseen(kept: Learned, photos: Photos, unseen: Learned, unseen_photos: Photos) -> Tensor:
    """What the kept model would be asked about these photos [n, row size], had it not learned them.

    unseen: a model of the same classes without these photos, and unseen_photos: the photos as that model's encoder
    sees them.
    """
    to_means, to_trained = cosines_of(unseen, unseen_photos)
    d = photos.embeddings.shape[1]
    rows = F.normalize(kept.rows[:, :d], dim=1)
    directions = F.normalize(photos.embeddings @ kept.whitening, dim=1)
    inverse = torch.linalg.pinv(rows.double(), rtol=1e-4).float()  # [d, classes]
    within = to_means @ inverse.T  # what the rows see
    beside = directions - directions @ rows.T @ inverse.T  # what they do not see, which keeps the length at 1
    room = (1 - within.square().sum(1, keepdim=True)).clamp(min=0).sqrt()
    queries = within + room * F.normalize(beside, dim=1)
    if to_trained is None or not kept.calibrator.two_inputs:
        return queries
    trained = F.normalize(kept.rows[:, d:], dim=1)
    change = to_trained - photos.features @ trained.T
    features = photos.features + change @ torch.linalg.pinv(trained.double(), rtol=1e-4).float().T
    return torch.cat([queries, features], 1)
