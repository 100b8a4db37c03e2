"""The metric of a model that was only taught: directions in which photos of one class differ count less.

The covariance within classes comes from the kept photos, every class counting alike, and is shrunk: with few photos a
class it is little more than a hint. It has a closed form that depends on nothing but the photos and their classes, not
on the order in which they came. A model that was fitted has chosen its whitening on held-out photos, and keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fscil.learner.store import Store

SHRINKAGE = 10.0  # times the mean variance
MOST_OF_CLASS = 100  # photos; further ones would tell little more
MOST_PHOTOS, MOST_WORK = 10_000, 1e9  # photos, and photos times d^2, so that teaching stays instant among many classes


@dataclass(frozen=True)
class Metric:
    """cos(A q, A m) takes the place of cos(q, m)."""

    matrix: Tensor  # A^T [d, d]
    deviations: Tensor  # [n, d], A times what every photo has added to the covariance: the sum of their outer products
    places: dict[int, int]  # in the store -> in deviations

    def of(self, places: NDArray[np.intp]) -> Tensor:
        """Deviations of photos; 0 of those that were not used."""
        padded = F.pad(self.deviations, (0, 0, 0, 1))
        return padded[[self.places.get(place, len(self.deviations)) for place in places.tolist()]]


def metric_of(store: Store) -> Metric | None:
    """None: no class has photos that differ."""
    classes = [places for _, places in store.classes()]
    several = sorted(
        (places[:MOST_OF_CLASS] for places in classes if len(places) > 1),
        key=lambda places: store.hashes[places[0]].tobytes(),
    )
    if not several:
        return None
    d = store.embeddings.shape[1]
    fits = np.cumsum([len(places) for places in several]) <= min(MOST_PHOTOS, MOST_WORK / d**2)
    used = several[: max(1, int(fits.sum()))]
    places = np.concatenate(used)
    counts = np.array([len(each) for each in used])
    vectors, starts = store.vectors(places), np.cumsum(counts) - counts
    means = np.add.reduceat(vectors, starts) / counts[:, None]
    n = np.repeat(counts, counts)[:, None]
    from_mean = (vectors - np.repeat(means, counts, axis=0)) / np.sqrt((n - 1) * len(used))
    S = from_mean.T @ from_mean
    # Classes of a single photo say nothing of how theirs differ; the more of them, the less is assumed.
    shrinkage = SHRINKAGE * (len(classes) / len(several)) ** 2
    variance = np.trace(S) / d
    if not variance > 1e-10 * np.square(vectors).mean():
        return None
    root = np.linalg.cholesky(S / variance + shrinkage * np.eye(d))
    A = np.linalg.inv(root)
    # Without a photo, its class's mean moves as well, so its part in S is larger by n / (n - 1).
    deviations = from_mean * np.sqrt(n / (n - 1) / variance) @ A.T
    numbers = dict(zip(places.tolist(), range(len(places)), strict=True))
    return Metric(torch.from_numpy(A.T.astype(np.float32)), torch.from_numpy(deviations.astype(np.float32)), numbers)


def cosines_without(rows: Tensor, queries: Tensor, deviations: Tensor, metric: Tensor) -> Tensor:
    """Every query's cosines to rows [C, d], or to rows of its own [Q, C, d], by the metric without it: [Q, C]

    Without a photo the covariance lacks the outer product of its deviation v. By Sherman and Morrison, that adds
    (a v)(b v) / (1 - v v) to the inner product of a and b.
    """
    a, b = queries @ metric, rows @ metric
    stretch = 1 / (1 - deviations.square().sum(1)).clamp(min=1e-6)
    if rows.dim() == 3:
        products, along = torch.einsum("qd,qcd->qc", a, b), torch.einsum("qd,qcd->qc", deviations, b)
        lengths = b.square().sum(2)
    else:
        products, along, lengths = a @ b.T, deviations @ b.T, b.square().sum(1)
    own = (a * deviations).sum(1)
    products = products + (stretch * own)[:, None] * along
    squares = (a.square().sum(1) + stretch * own.square())[:, None] * (lengths + stretch[:, None] * along.square())
    return products / squares.clamp(min=1e-24).sqrt()
