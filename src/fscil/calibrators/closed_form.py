"""The transformer calibrator without attention per query: exact, and hardly dearer than a linear head.

Class-to-class attention is the same for every query; a query only adds one key. So the calibrated row of class i is a
mixture of two vectors, of which one belongs to the class and one to the query:

    y_iq = r_i + b + alpha_iq A_i + (1 - alpha_iq) U_q = R_i + beta_iq (U_q - A_i)

with A_i = W_FC^T (attention of i over the classes), U_q = W_FC^T v_q, R_i = r_i + b + A_i and
beta_iq = sigmoid(s_iq - l_i), where s_iq is the score of the query's key and l_i the logarithm of the classes' summed
exponential scores. The mean, the variance, the norm and the inner product that layer normalisation and the logits need
are then sums over products of class-side and query-side vectors: matrix products [C, d] x [d, Q], and no [Q, C, d]
tensor. Not valid with dropout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from fscil.calibrators.transformer import Transformer

CHUNK = 2**22  # entries of a [queries, classes] or [classes, classes] matrix that are worked on at once


@dataclass(frozen=True)
class ClassTerms:
    """All that does not depend on the query; to be made again when a row changes."""

    asks: Tensor  # W_Q^T r_i [C, d']
    keys: Tensor  # W_K^T r_i [C, d']
    values: Tensor  # W_V^T r_i [C, d']
    log_mass: Tensor  # l_i [C]
    R: Tensor  # centred [C, d]
    A: Tensor  # centred [C, d]


def class_terms(calibrator: Transformer, rows: Tensor) -> ClassTerms:
    """rows [C, d]; time grows with C squared, memory does not."""
    asks, keys, values = calibrator.W_Q(rows), calibrator.W_K(rows), calibrator.W_V(rows)
    scale = keys.shape[1] ** -0.5
    attended, log_mass = [], []
    for part in asks.split(max(1, CHUNK // len(rows))):
        scores = scale * part @ keys.T
        log_mass.append(scores.logsumexp(1))
        attended.append(scores.softmax(1) @ values)
    A = F.linear(torch.cat(attended), calibrator.W_FC.weight)
    R = rows + calibrator.W_FC.bias + A
    return ClassTerms(asks, keys, values, torch.cat(log_mass), centred(R), centred(A))


def logits(calibrator: Transformer, terms: ClassTerms, queries: Tensor) -> Tensor:
    """queries [Q, d] -> [Q, C], as Transformer.attend gives them without dropout."""
    parts = queries.split(max(1, CHUNK // len(terms.keys)))
    return torch.cat([_logits(calibrator, terms, part) for part in parts])


def _logits(calibrator: Transformer, terms: ClassTerms, x: Tensor) -> Tensor:
    norm = calibrator.layer_norm
    gamma, delta = norm.weight, norm.bias
    ask, key, value = calibrator.W_Q(x), calibrator.W_K(x), calibrator.W_V(x)
    scale = key.shape[1] ** -0.5

    # the query's own token attends to all classes and to itself
    scores = torch.cat([scale * ask @ terms.keys.T, scale * (ask * key).sum(1, keepdim=True)], 1).softmax(1)
    attended = scores[:, :-1] @ terms.values + scores[:, -1:] * value
    z = norm(x + calibrator.W_FC(attended))

    # every class's token attends to this query with weight beta [Q, C]
    beta = torch.sigmoid(scale * key @ terms.asks.T - terms.log_mass)
    R, A, U = terms.R, terms.A, centred(F.linear(value, calibrator.W_FC.weight))
    variance = squared_norm(R, A, U, beta) / x.shape[1]
    deviation = (variance + norm.eps).sqrt()

    def times(g: Tensor) -> Tensor:
        """<y_iq, g_q> for the centred y; g [Q, d] or [1, d]"""
        return g @ R.T + beta * ((U * g).sum(1, keepdim=True) - g @ A.T)

    if not calibrator.cosine:
        return calibrator.scale * (times(gamma * z) / deviation + (z @ delta)[:, None])
    z = F.normalize(z, dim=1)
    product = times(gamma * z) / deviation + (z @ delta)[:, None]
    length = squared_norm(gamma * R, gamma * A, gamma * U, beta) / deviation**2
    length = length + 2 * times((gamma * delta)[None]) / deviation + delta @ delta
    return calibrator.scale * product / length.clamp(min=1e-24).sqrt()


def squared_norm(R: Tensor, A: Tensor, U: Tensor, beta: Tensor) -> Tensor:
    """|R_i + beta_iq (U_q - A_i)|^2 [Q, C]"""
    cross = U @ R.T - (R * A).sum(1)
    gap = U.square().sum(1, keepdim=True) - 2 * U @ A.T + A.square().sum(1)
    return (R.square().sum(1) + 2 * beta * cross + beta.square() * gap).clamp(min=0)


def centred(x: Tensor) -> Tensor:
    return x - x.mean(1, keepdim=True)
