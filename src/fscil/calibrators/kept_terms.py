"""Class-side terms that are kept from one prediction to the next, and follow the rows as classes come and go.

Whether kept terms still hold is decided by comparing the rows and weights they were made from with the present ones,
number by number. That is cheaper than the cheapest prediction with them, and nothing slips through: gradient steps,
replayed CUDA graphs, loaded states, moves to another device, deep copies, writes into `.data`.

A class that is taught adds one key to every other class's attention, and one that is forgotten takes it away, so
both cost time linear in the number of classes. The sums are kept in float64: they do not drift.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fscil.calibrators.closed_form import ClassTerms, Weights, attention, class_terms, complete, fold

if TYPE_CHECKING:
    from fscil.calibrators.transformer import Transformer

WORN = math.log(8)  # a row whose mass fell to an eighth has lost three bits: it is attended anew
AFRESH = 4  # with more than one row in four changed, building anew is about as cheap


@dataclass(frozen=True)
class KeptTerms:
    made_from: tuple[Tensor, ...]  # copies of the calibrator's parameters
    weights: Weights
    terms: ClassTerms
    A: Tensor  # as in terms, but float64 [C, d]
    log_mass: Tensor  # float64 [C]
    highest: Tensor  # that log_mass has been since the row was last attended as a whole [C]


def keep(calibrator: Transformer, rows: Tensor) -> KeptTerms:
    """Terms for rows [C, d], C > 0, in time quadratic in C."""
    made_from = tuple(parameter.detach().clone() for parameter in parameters(calibrator))
    weights = fold(calibrator)
    terms = class_terms(weights, rows.detach().clone(), calibrator.memory)
    log_mass = terms.log_mass.double()
    return KeptTerms(made_from, weights, terms, terms.A.double(), log_mass, log_mass)


def follow(kept: KeptTerms | None, calibrator: Transformer, rows: Tensor) -> KeptTerms:
    """Terms for rows [C, d], C > 0: the kept ones where they hold, else changed, else made anew."""
    if kept is None or not holds(kept, calibrator):
        return keep(calibrator, rows)
    old = kept.terms.rows
    if same(old, rows):
        return kept
    if old.device != rows.device or old.dtype != rows.dtype or old.shape[1:] != rows.shape[1:]:
        return keep(calibrator, rows)
    staying = survivors(old, rows)
    changes = len(old) + len(rows) - 2 * len(staying)
    if changes * AFRESH > len(rows):
        return keep(calibrator, rows)
    if len(staying) < len(old):
        kept = remove(kept, staying, calibrator.memory)
    if len(staying) < len(rows):
        kept = append(kept, rows[len(staying) :], calibrator.memory)
    return kept


def append(kept: KeptTerms, rows: Tensor, memory: float) -> KeptTerms:
    """Terms with rows [n, d] after the others: each of them is one key more for all, and attends once to all."""
    old = kept.terms
    keys, values = kept.weights.keys_and_values(rows)
    scores = old.rows.double() @ keys.double().T  # [C, n]
    log_mass = torch.logaddexp(kept.log_mass, scores.logsumexp(1))
    A = kept.A * (kept.log_mass - log_mass).exp()[:, None] + (scores - log_mass[:, None]).exp() @ values.double()
    rows, keys, values = torch.cat([old.rows, rows]), torch.cat([old.keys, keys]), torch.cat([old.values, values])
    got, mass = attention(rows[len(A) :], keys, values, memory)
    A, log_mass = torch.cat([A, got.double()]), torch.cat([log_mass, mass.double()])
    highest = torch.maximum(log_mass, torch.cat([kept.highest, mass.double()]))
    return _with(kept, rows, keys, values, A, log_mass, highest)


def remove(kept: KeptTerms, staying: Tensor, memory: float) -> KeptTerms:
    """Terms of the classes at these places [n], in this order: the keys of all others are taken out of their attention."""
    old = kept.terms
    going = torch.ones(len(old.rows), dtype=torch.bool, device=staying.device)
    going[staying] = False
    rows, keys, values = old.rows[staying], old.keys[staying], old.values[staying]
    share = (rows.double() @ old.keys[going].double().T - kept.log_mass[staying, None]).exp()  # [n, going]
    left = 1 - share.sum(1, keepdim=True)
    A = (kept.A[staying] - share @ old.values[going].double()) / left
    log_mass, highest = kept.log_mass[staying] + left.squeeze(1).log(), kept.highest[staying]
    # where the difference is small against what it was taken from, its first digits are lost
    worn = ~(log_mass > highest - WORN)  # also where nothing is left, or less
    if worn.any():
        got, mass = attention(rows[worn], keys, values, memory)
        A[worn], log_mass[worn], highest[worn] = got.double(), mass.double(), mass.double()
    return _with(kept, rows, keys, values, A, log_mass, highest)


def _with(
    kept: KeptTerms, rows: Tensor, keys: Tensor, values: Tensor, A: Tensor, log_mass: Tensor, highest: Tensor
) -> KeptTerms:
    terms = complete(kept.weights, rows, keys, values, A.to(rows.dtype), log_mass.to(rows.dtype))
    return KeptTerms(kept.made_from, kept.weights, terms, A, log_mass, highest)


def survivors(old: Tensor, new: Tensor) -> Tensor:
    """Places of old rows [C, d], rising, that the new rows [C', d] begin with: those not forgotten."""
    if same(old, new[: len(old)]):
        return torch.arange(len(old), device=old.device)
    marks, places, i = [hash(row.tobytes()) for row in old.cpu().numpy()], [], 0
    for row in new.detach().cpu().numpy():
        try:
            i = marks.index(hash(row.tobytes()), i) + 1
        except ValueError:  # this row is new, and so are those after it
            break
        places.append(i - 1)
    found = torch.tensor(places, dtype=torch.long, device=old.device)
    return found if same(old[found], new[: len(found)]) else found[:0]  # two rows of one hash are a reason to give up


def parameters(calibrator: Transformer) -> tuple[Tensor, ...]:
    c = calibrator
    return (
        c.W_Q.weight,
        c.W_K.weight,
        c.W_V.weight,
        c.W_FC.weight,
        c.W_FC.bias,
        c.layer_norm.weight,
        c.layer_norm.bias,
    )


def holds(kept: KeptTerms, calibrator: Transformer) -> bool:
    weights = kept.weights
    return (weights.eps, weights.cosine, weights.scale) == (
        calibrator.layer_norm.eps,
        calibrator.cosine,
        calibrator.scale,
    ) and all(map(same, kept.made_from, parameters(calibrator)))


def same(a: Tensor, b: Tensor) -> bool:
    """Bit for bit"""
    if a.device != b.device or a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype == torch.float32 and a.shape[-1] % 2 == 0 and a.is_contiguous() and b.is_contiguous():
        a, b = a.view(torch.int64), b.view(torch.int64)  # two at a time take half the time
    return torch.equal(a, b)
