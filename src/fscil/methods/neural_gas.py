"""Neural gas: nodes that spread over features, and edges between nodes that respond together (TOPIC, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
AT_ONCE = 4096  # features whose distances to all nodes are computed together


@dataclass
class NeuralGas:
    """Nodes with centroids m [N, d]; edges e and their ages a, [N, N], both symmetric; a is 0 without an edge."""

    m: Floats
    e: NDArray[np.bool_]
    a: Ints

    @classmethod
    def at(cls, centroids: Floats) -> NeuralGas:
        """Nodes at these places, without edges."""
        n = len(centroids)
        return cls(centroids.copy(), np.zeros((n, n), np.bool_), np.zeros((n, n), np.int64))

    def ranks(self, f: Floats) -> Ints:
        """r_1 ... r_N: the nodes in order of their distance to a feature [d]"""
        return np.argsort(((self.m - f) ** 2).sum(1), kind="stable")

    def adapt(self, f: Floats, step: float, alpha: float, lifetime: int) -> None:
        """Competitive Hebbian learning of one feature, TOPIC's Eq. (3) and (4)."""
        r = self.ranks(f)
        weights = step * np.exp(-np.arange(1, len(r) + 1) / alpha)
        self.m[r] += weights[:, None] * (f - self.m[r])
        self.connect(r, lifetime)

    def connect(self, r: Ints, lifetime: int) -> None:
        """The two nearest nodes are joined by an edge of age 0; other edges of the nearest age, and old ones go."""
        if len(r) < 2:
            return
        first, second = r[0], r[1]
        self.a[first] += self.e[first]
        self.e[first, second], self.a[first, second] = True, 0
        self.e[first] &= self.a[first] <= lifetime
        self.a[first] *= self.e[first]
        self.e[:, first], self.a[:, first] = self.e[first], self.a[first]

    def add(self, centroids: Floats) -> None:
        """New nodes [n, d], without edges."""
        n = len(centroids)
        self.m = np.concatenate([self.m, centroids])
        self.e, self.a = np.pad(self.e, (0, n)), np.pad(self.a, (0, n))


def fit(features: Floats, nodes: int, steps: int, step: float, alpha: float, lifetime: int, seed: int) -> NeuralGas:
    """A gas on features [n, d]: it starts at some of them, then learns one per step, all of them in every round."""
    generator = np.random.default_rng(seed)
    gas = NeuralGas.at(features[np.sort(generator.permutation(len(features))[:nodes])])
    while steps > 0:
        for i in generator.permutation(len(features))[:steps]:
            gas.adapt(features[i], step, alpha, lifetime)
        steps -= len(features)
    return gas


@dataclass
class Meaning:
    """What nodes stand for: each one's class [N], its anchor, the image that stands for it [N], and variances [N, d]"""

    labels: Ints
    anchors: Ints
    variances: Floats


def meaning(m: Floats, features: Floats, labels: Ints) -> Meaning:
    """A node's class is that of most features to which it is the nearest node; of these features of that class, the
    nearest is its anchor, and their variance in each dimension is the node's. A node that is nearest to none stands for
    the feature nearest to it.
    """
    winners = np.concatenate([nearest(m, part) for part in np.array_split(features, -(-len(features) // AT_ONCE))])
    found = Meaning(np.zeros(len(m), np.int64), np.zeros(len(m), np.int64), np.zeros_like(m))
    for j in range(len(m)):
        own = np.flatnonzero(winners == j)
        if len(own) == 0:
            own = nearest(features, m[j : j + 1])
        found.labels[j] = np.bincount(labels[own]).argmax()
        own = own[labels[own] == found.labels[j]]
        found.anchors[j] = own[nearest(features[own], m[j : j + 1])[0]]
        found.variances[j] = features[own].var(0)
    return found


def nearest(points: Floats, features: Floats) -> Ints:
    """For each feature [n, d], which of the points [N, d] is the nearest: [n]"""
    winners: Ints = ((points**2).sum(1) - 2 * features @ points.T).argmin(1)
    return winners
