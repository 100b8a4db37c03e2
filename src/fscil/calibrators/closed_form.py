"""The transformer calibrator without attention per query: exact, and a handful of matrix products.

Class-to-class attention is the same for every query; a query only adds one key. So the calibrated row of class i is a
mixture of two vectors, of which one belongs to the class and one to the query:

    y_iq = r_i + (1 - beta_iq) A_i + beta_iq U_q = R_i + beta_iq (U_q - A_i),      row~ = gamma y / sigma + delta

with A_i what the class gets from the classes, U_q what it gets from the query, R_i = r_i + A_i, sigma the deviation of
y and beta_iq = sigmoid(s_iq - l_i), where s_iq is the score of the query's key and l_i the logarithm of the classes'
summed exponential scores. The variance, the norm and the inner product that layer normalisation and the logits need
are then sums over products of class-side and query-side vectors: matrix products [Q, d] x [d, C], and no [Q, C, d]
tensor. The mean is linear, so it is subtracted beforehand: A, U and R are centred. Not valid with dropout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from fscil.calibrators.transformer import Transformer

ROOMS = 4  # matrices [queries, classes] that are needed at once, beside the logits


@dataclass(frozen=True)
class Weights:
    """The calibrator's weights multiplied out: token x asks token x' with score <x, key'> and gets value'."""

    key: Tensor  # W_Q^T W_K / sqrt(d') [d, d]
    value: Tensor  # W_FC^T W_V^T, centred [d, d]
    bias: Tensor  # of W_FC, centred [d]; in every value, since attention sums to one
    gamma: Tensor  # [d]
    delta: Tensor  # [d]
    tilt: Tensor  # 2 gamma delta [d]
    eps: float
    cosine: bool
    scale: float

    def keys_and_values(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """[n, d] -> [n, d], [n, d]"""
        return F.linear(tokens, self.key), F.linear(tokens, self.value, self.bias)


def fold(calibrator: Transformer) -> Weights:
    W_Q, W_K, W_V, W_FC = (getattr(calibrator, name).weight for name in ("W_Q", "W_K", "W_V", "W_FC"))
    norm, bias, value = calibrator.layer_norm, calibrator.W_FC.bias, W_FC @ W_V
    return Weights(
        key=W_Q.T @ W_K * len(W_Q) ** -0.5,
        value=value - value.mean(0),
        bias=bias - bias.mean(),
        gamma=norm.weight,
        delta=norm.bias,
        tilt=2 * norm.weight * norm.bias,
        eps=norm.eps,
        cosine=calibrator.cosine,
        scale=calibrator.scale,
    )


@dataclass(frozen=True)
class Gram:
    """Inner products <u, v> = sum_k w_k u_k v_k of each class's own two vectors."""

    w: Tensor  # [d]
    RR: Tensor  # [C]
    RA: Tensor  # [C]
    AA: Tensor  # [C]


@dataclass(frozen=True)
class ClassTerms:
    """All that does not depend on the query."""

    rows: Tensor  # r_i [C, d]
    keys: Tensor  # [C, d]
    values: Tensor  # [C, d]
    log_mass: Tensor  # l_i [C]
    A: Tensor  # [C, d]
    R: Tensor  # [C, d]
    variance: Gram  # for sigma^2 = |y|^2 / d + eps
    length: Gram  # for |gamma y|^2 + |sigma delta|^2
    tilt_A: Tensor  # <2 gamma delta, A_i> [C]
    tilt_R: Tensor  # [C]


def class_terms(weights: Weights, rows: Tensor, memory: float) -> ClassTerms:
    """rows [C, d]; time grows with C squared, memory does not."""
    keys, values = weights.keys_and_values(rows)
    A, log_mass = attention(rows, keys, values, memory)
    return complete(weights, rows, keys, values, A, log_mass)


def complete(weights: Weights, rows: Tensor, keys: Tensor, values: Tensor, A: Tensor, log_mass: Tensor) -> ClassTerms:
    """What follows from the attention among the classes, in time linear in C."""
    R = rows - rows.mean(1, keepdim=True) + A
    gamma, delta, d = weights.gamma, weights.delta, rows.shape[1]

    def gram(w: Tensor, eps: Tensor | float) -> Gram:
        return Gram(w, R.square() @ w + eps, (R * A) @ w, A.square() @ w)

    variance = gram(torch.full_like(gamma, 1 / d), weights.eps)
    length = gram(gamma.square() + delta @ delta / d, delta @ delta * weights.eps)
    return ClassTerms(rows, keys, values, log_mass, A, R, variance, length, A @ weights.tilt, R @ weights.tilt)


def attention(asks: Tensor, keys: Tensor, values: Tensor, memory: float) -> tuple[Tensor, Tensor]:
    """asks [n, d], keys and values [C, d] -> what is got [n, d] and the logarithm of the sum of exp(score) [n]"""
    step = at_once(memory, keys, 1)
    room = None if torch.is_grad_enabled() else keys.new_empty(min(step, len(asks)), len(keys))
    parts = [attend(part, keys, values, room if room is None else room[: len(part)]) for part in asks.split(step)]
    return torch.cat([got for got, _ in parts]), torch.cat([log_mass for _, log_mass in parts]).squeeze(1)


def attend(asks: Tensor, keys: Tensor, values: Tensor, room: Tensor | None) -> tuple[Tensor, Tensor]:
    """[n, d], [n, 1]; room [n, C] takes the scores"""
    scores = torch.mm(asks, keys.T, out=room)
    highest = scores.detach().amax(1, keepdim=True)  # so that no exponential overflows
    share = scores.sub_(highest).exp_()
    mass = share.sum(1, keepdim=True)
    return (share @ values).div_(mass), mass.log().add_(highest)


def logits(weights: Weights, terms: ClassTerms, queries: Tensor, memory: float) -> Tensor:
    """queries [Q, d] -> [Q, C], as Transformer.attend gives them without dropout."""
    step = at_once(memory, terms.rows, ROOMS)
    if torch.is_grad_enabled():  # autograd keeps what it needs, so there is no room to use again
        return torch.cat([_logits(weights, terms, x, (None,) * ROOMS, None) for x in queries.split(step)])
    found = queries.new_empty(len(queries), len(terms.rows))
    rooms = queries.new_empty(ROOMS, min(step, len(queries)), len(terms.rows))
    for i in range(0, len(queries), step):
        x = queries[i : i + step]
        _logits(weights, terms, x, rooms[:, : len(x)].unbind(), found[i : i + step])
    return found


def _logits(
    weights: Weights, terms: ClassTerms, x: Tensor, rooms: tuple[Tensor | None, ...], found: Tensor | None
) -> Tensor:
    """In place wherever an old value has no further use; autograd allows it for these operations."""
    gamma, delta, R, A = weights.gamma, weights.delta, terms.R.T, terms.A.T
    key, U = weights.keys_and_values(x)
    first, second, third, fourth = rooms

    # the query's own token attends to all classes and, with weight beta_q, to itself
    got, log_mass = attend(x, terms.keys, terms.values, first)
    beta_q = (dot(x, key) - log_mass).sigmoid_()
    z = F.layer_norm(x + torch.lerp(got, U, beta_q), delta.shape, gamma, delta, weights.eps)
    size = torch.linalg.vector_norm(z, dim=1, keepdim=True).clamp(min=1e-12) if weights.cosine else 1.0
    z = z * (weights.scale / size)

    # every class's token attends to this query with weight beta [Q, C]
    beta = torch.addmm(terms.log_mass, key, terms.rows.T, beta=-1, out=first).sigmoid_()

    def squared_norm(gram: Gram, room: Tensor | None) -> Tensor:
        """|y_iq|^2 = RR + beta (2 <R, U - A> + beta |U - A|^2) [Q, C]"""
        wU = gram.w * U
        gap = torch.addmm(gram.AA, wU, A, alpha=-2, out=second).add_(dot(wU, U))
        cross = torch.addmm(gram.RA, wU, R, alpha=2, beta=-2, out=room)
        return cross.addcmul_(beta, gap).mul_(beta).add_(gram.RR)

    sigma = squared_norm(terms.variance, third).clamp_(min=weights.eps).sqrt_()
    g = gamma * z
    gap = torch.addmm(dot(g, U), g, A, alpha=-1, out=second)
    product = torch.mm(g, R, out=found).addcmul_(beta, gap)  # <z, gamma y>
    product.addcmul_(sigma, (z @ delta).unsqueeze(1))  # sigma <z, row~>
    if not weights.cosine:
        return product.div_(sigma)
    length = squared_norm(terms.length, fourth)
    tilt = torch.sub((U @ weights.tilt).unsqueeze(1), terms.tilt_A, out=second).mul_(beta).add_(terms.tilt_R)
    length.addcmul_(sigma, tilt).clamp_(min=1e-24)  # |sigma row~|^2
    return product.mul_(length.rsqrt_())


def dot(a: Tensor, b: Tensor) -> Tensor:
    """[n, d], [n, d] -> [n, 1]"""
    return (a * b).sum(1, keepdim=True)


def at_once(memory: float, rows: Tensor, matrices: int) -> int:
    """How many tokens can be worked on at once, if each needs so many rows of C numbers within so many MiB."""
    return max(1, int(memory * 2**20) // (matrices * max(1, len(rows)) * rows.element_size()))
