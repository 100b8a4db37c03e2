"""The transformer calibrator without attention per query: exact, and a handful of matrix products.

Attention among the classes is the same for every query; a query only adds one key. So the calibrated row of class i is
a mixture of two vectors, one that belongs to the class and one that belongs to the query:

    y_iq = r_i + (1 - beta_iq) A_i + beta_iq U_q = R_i + beta_iq (U_q - A_i),      row~ = gamma y / sigma + delta

where A_i is what the class attends to among the classes, U_q what it gets from the query, R_i = r_i + A_i, sigma the
deviation of y and beta_iq = sigmoid(s_iq - l_i), where s_iq is the score of the query's key and l_i the logarithm of
the classes' summed exponential scores. The variance, the norm and the inner product that layer normalisation and the
logits need are then sums over products of class-side and query-side vectors: matrix products [Q, d] x [d, C], and no
[Q, C, d] tensor. The mean is linear, so it is subtracted in advance: A, U and R are centred. Not valid with dropout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.calibrators.attention import at_once, attend_in_blocks, in_blocks

if TYPE_CHECKING:
    from fscil.calibrators.transformer import Transformer

BUFFERS = 4  # matrices [queries, classes] that are reused for the next queries
NO_BUFFERS = (None,) * BUFFERS
MATRICES = BUFFERS + 2  # that are alive at once
FEW = 2**16  # numbers in the rows: with fewer, launching an operation takes longer than running it


@dataclass(frozen=True)
class Weights:
    """The calibrator's weights multiplied out: token x attends to token x' with score <x, key'> and gets value'."""

    key: Tensor  # W_Q^T W_K / sqrt(d') [d, d]
    value: Tensor  # W_FC^T W_V^T, centred [d, d]
    bias: Tensor  # of W_FC, centred [d]; in every value, since attention sums to one
    gamma: Tensor  # [d]
    delta: Tensor  # [d]
    scaled_gamma: Tensor  # by the scale of the logits [d]
    scaled_delta: Tensor  # [d]
    tilt: Tensor  # 2 gamma delta [d]
    eps: float
    cosine: bool
    scale: float
    query_length: bool  # with cosine: the query keeps its length

    def keys_and_values(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """[n, d] -> [n, d], [n, d]"""
        return F.linear(tokens, self.key), F.linear(tokens, self.value, self.bias)


def fold(calibrator: Transformer, dtype: torch.dtype | None = None) -> Weights:
    """The weights in the given precision, by default the calibrator's own."""
    W_Q, W_K, W_V, W_FC, bias, gamma, delta = (each.to(dtype or each.dtype) for each in parameters(calibrator))
    value = W_FC @ W_V
    return Weights(
        key=W_Q.T @ W_K * len(W_Q) ** -0.5,
        value=value - value.mean(0),
        bias=bias - bias.mean(),
        gamma=gamma,
        delta=delta,
        scaled_gamma=calibrator.scale * gamma,
        scaled_delta=calibrator.scale * delta,
        tilt=2 * gamma * delta,
        eps=calibrator.layer_norm.eps,
        cosine=calibrator.cosine,
        scale=calibrator.scale,
        query_length=calibrator.query_length,
    )


def parameters(calibrator: Transformer) -> tuple[Tensor, ...]:
    c, norm = calibrator, calibrator.layer_norm
    return c.W_Q.weight, c.W_K.weight, c.W_V.weight, c.W_FC.weight, c.W_FC.bias, norm.weight, norm.bias


@dataclass(frozen=True)
class Gram:
    """Inner products <u, v>_w = sum_k w_k u_k v_k of each class's own two vectors."""

    w: Tensor  # [d]
    RR: Tensor  # [C]
    RA: Tensor  # [C]
    AA: Tensor  # [C]


@dataclass(frozen=True)
class ClassTerms:
    """Everything that does not depend on the query."""

    rows: Tensor  # r_i [C, d]
    values: Tensor  # [C, d]
    keys: Tensor  # [d, C]
    log_mass: Tensor  # l_i [1, C]
    A: Tensor  # [d, C]
    R: Tensor  # [d, C]
    variance: Gram  # for sigma^2 = |y|^2 / d + eps
    length: Gram  # for |gamma y|^2 + |sigma delta|^2, which with sigma <2 gamma delta, y> is |sigma row~|^2
    AT: Tensor  # <A_i, 2 gamma delta> [C]
    RT: Tensor  # [C]


def class_terms(weights: Weights, rows: Tensor, memory: float) -> ClassTerms:
    """rows [C, d]; time grows with C squared, memory does not."""
    keys, values = weights.keys_and_values(rows)
    return complete(weights, rows, keys, values, *attend_in_blocks(rows, keys, values, memory))


def complete(weights: Weights, rows: Tensor, keys: Tensor, values: Tensor, A: Tensor, log_mass: Tensor) -> ClassTerms:
    """The terms that follow from attention among the classes, in time linear in C, rounded to the precision of rows."""
    gamma, delta, d = weights.gamma, weights.delta, rows.shape[1]
    w = torch.stack([torch.full_like(gamma, 1 / d), gamma.square() + delta @ delta / d])
    eps = weights.eps * torch.stack([torch.ones_like(delta[0]), delta @ delta])

    def derive(r: Tensor, A: Tensor) -> tuple[Tensor, ...]:
        r = r.to(A.dtype)
        R = r - r.mean(1, keepdim=True) + A
        RR, RA, AA = ((u * v) @ w.T for u, v in ((R, R), (R, A), (A, A)))
        return tuple(x.to(rows.dtype) for x in (A, R, RR + eps, RA, AA, A @ weights.tilt, R @ weights.tilt))

    A, R, RR, RA, AA, AT, RT = in_blocks(derive, rows, A)
    variance, length = map(Gram, w.to(rows.dtype), *(x.T.contiguous() for x in (RR, RA, AA)))
    return ClassTerms(rows, values, keys.T, log_mass.to(rows.dtype).T, A.T, R.T, variance, length, AT, RT)


def logits(weights: Weights, terms: ClassTerms, queries: Tensor, memory: float) -> Tensor:
    """queries [Q, d] -> [Q, C], as Transformer.attend gives them without dropout."""
    if torch.compiler.is_compiling():  # also while exporting: the program must not depend on the number of queries
        return _logits(weights, terms, queries, NO_BUFFERS, None)
    step = at_once(memory, len(terms.rows) * queries.element_size() * MATRICES)
    if torch.is_grad_enabled():  # autograd keeps intermediate results, so no buffer can be reused
        return torch.cat([_logits(weights, terms, x, NO_BUFFERS, None) for x in queries.split(step)])
    if len(queries) == 1 and terms.rows.numel() <= FEW:
        return _logits_of_one(weights, terms, queries)
    found = queries.new_empty(len(queries), len(terms.rows))
    buffers = queries.new_empty(BUFFERS, min(step, len(queries)), len(terms.rows))
    for i in range(0, len(queries), step):
        x = queries[i : i + step]
        _logits(weights, terms, x, buffers[:, : len(x)].unbind(), found[i : i + step])
    return found


def attend_with_query(
    weights: Weights, terms: ClassTerms, x: Tensor, buffer: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [Q, d] -> their own tokens before layer normalisation [Q, d], U [Q, d] and beta [Q, C]"""
    key, U = weights.keys_and_values(x)
    # the query's own token attends to all classes and to itself
    share = torch.cat([torch.mm(x, terms.keys, out=buffer), dot(x, key)], 1).softmax(1)
    own = torch.addmm(x, share[:, :-1], terms.values).addcmul_(share[:, -1:], U)
    # every class's token attends to this query with weight beta
    return own, U, torch.addmm(terms.log_mass, key, terms.rows.T, beta=-1, out=buffer).sigmoid_()


def calibrated_queries(weights: Weights, terms: ClassTerms, queries: Tensor) -> Tensor:
    """phi~(x) [Q, d], as Transformer.calibrate gives them without dropout"""
    own, _, _ = attend_with_query(weights, terms, queries)
    return F.layer_norm(own, weights.delta.shape, weights.gamma, weights.delta, weights.eps)


def _logits(
    weights: Weights, terms: ClassTerms, x: Tensor, buffers: tuple[Tensor | None, ...], out: Tensor | None
) -> Tensor:
    """In place wherever a value is not needed again; autograd allows it for these operations."""
    gamma, delta, R, A = weights.gamma, weights.delta, terms.R, terms.A
    first, second, third, fourth = buffers
    own, U, beta = attend_with_query(weights, terms, x, first)
    z = F.layer_norm(own, delta.shape, gamma, delta, weights.eps)
    if weights.cosine and not weights.query_length:
        z = z / length_of(z)

    def squared_norm(gram: Gram, buffer: Tensor | None) -> Tensor:
        """|y_iq|^2_w = RR + beta (2 <R, U - A>_w + beta |U - A|^2_w) [Q, C]"""
        wU = gram.w * U
        gap = torch.addmm(gram.AA, wU, A, alpha=-2, out=second).add_(dot(wU, U))
        cross = torch.addmm(gram.RA, wU, R, alpha=2, beta=-2, out=buffer)
        return cross.addcmul_(beta, gap).mul_(beta).add_(gram.RR)

    sigma = squared_norm(terms.variance, third).clamp_(min=weights.eps).sqrt_()
    g = weights.scaled_gamma * z
    gap = torch.addmm(dot(g, U), g, A, alpha=-1, out=second)
    product = torch.mm(g, R, out=out).addcmul_(beta, gap)  # <z, gamma y>
    product.addcmul_(sigma, (z @ weights.scaled_delta).unsqueeze(1))  # sigma <z, row~>
    if not weights.cosine:
        return product.div_(sigma)
    length = squared_norm(terms.length, fourth)
    tilt = torch.sub((U @ weights.tilt).unsqueeze(1), terms.AT, out=second).mul_(beta).add_(terms.RT)
    length.addcmul_(sigma, tilt).clamp_(min=1e-24)  # |sigma row~|^2
    return product.mul_(length.rsqrt_())


def _logits_of_one(weights: Weights, terms: ClassTerms, x: Tensor) -> Tensor:
    """One query [1, d] has only C calibrated rows: building them takes fewer but larger operations than _logits."""
    own, U, beta = attend_with_query(weights, terms, x)
    y = torch.cat([torch.addcmul(terms.R.T, beta.T, U - terms.A.T), own])
    tokens = F.layer_norm(y, weights.delta.shape, weights.gamma, weights.delta, weights.eps)
    query = tokens[-1:]
    if weights.cosine:
        tokens = tokens / length_of(tokens)
        query = query if weights.query_length else tokens[-1:]
    return weights.scale * (query @ tokens[:-1].T)


def length_of(x: Tensor) -> Tensor:
    """[n, d] -> [n, 1], never zero"""
    return torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp(min=1e-12)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """[n, d], [n, d] -> [n, 1]"""
    return (a * b).sum(1, keepdim=True)
