"""Class-side terms that are kept from one prediction to the next, and follow the rows as classes come and go.

Whether kept terms still hold is decided by comparing the rows and weights they were made from with the present ones,
number by number. That is little beside encoding an image, and nothing slips through: gradient steps, replayed CUDA
graphs, loaded states, moves to another device, deep copies, writes into `.data`.

A class that is taught adds one key to every other class's attention, and one that is forgotten takes it away, so
both cost time linear in the number of classes. All this is done in float64 and rounded at the end: nothing drifts, and
the terms, so the predictions, do not tell in which steps the classes came.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.calibrators.attention import attend_in_blocks, in_blocks, merge
from fscil.calibrators.closed_form import ClassTerms, Weights, complete, fold, parameters

if TYPE_CHECKING:
    from fscil.calibrators.transformer import Transformer

WORN = math.log(8)  # a row whose mass fell to an eighth has lost three bits: it is attended anew
AFRESH = 4  # with more than one row in four changed, building anew is about as cheap


@dataclass(frozen=True)
class KeptTerms:
    made_from: tuple[Tensor, ...]  # copies of the calibrator's parameters
    weights: Weights
    terms: ClassTerms
    exact: Weights  # float64, as all below
    A: Tensor  # [C, d]
    log_mass: Tensor  # [C, 1]
    highest: Tensor  # that log_mass has been since the row was last attended as a whole [C, 1]


def update(kept: KeptTerms | None, calibrator: Transformer, rows: Tensor) -> KeptTerms:
    """Terms for rows [C, d], C > 0: the kept ones where they hold, else changed, else made anew."""
    if kept is None or not holds(kept, calibrator):
        return make(calibrator, rows)
    old = kept.terms.rows
    if same(old, rows):
        return kept
    staying = survivors(old, rows)
    changes = len(old) + len(rows) - 2 * len(staying)
    if changes * AFRESH > len(rows):
        return make(calibrator, rows)
    if len(staying) < len(old):
        kept = remove(kept, staying, calibrator.memory)
    if len(staying) < len(rows):
        kept = append(kept, rows[len(staying) :], calibrator.memory)
    return kept


def make(calibrator: Transformer, rows: Tensor) -> KeptTerms:
    """In time quadratic in C."""
    rows = rows.detach().clone()
    made_from = tuple(parameter.detach().clone() for parameter in parameters(calibrator))
    exact, memory = fold(calibrator, torch.float64), calibrator.memory
    rounded: dict[str, Any] = {name: x.to(rows) for name, x in vars(exact).items() if isinstance(x, Tensor)}
    precise = rows.double()
    A, log_mass = from_classes(exact, precise, precise, memory)
    keys, values = keys_and_values(exact, rows)
    terms = complete(exact, rows, keys, values, A, log_mass)
    return KeptTerms(made_from, dataclasses.replace(exact, **rounded), terms, exact, A, log_mass, log_mass)


def append(kept: KeptTerms, rows: Tensor, memory: float) -> KeptTerms:
    """Terms with rows [n, d] after the others: each is one key more for all, and attends to all."""
    old, exact = kept.terms, kept.exact

    def with_new(r: Tensor, A: Tensor, log_mass: Tensor, highest: Tensor) -> tuple[Tensor, ...]:
        A, log_mass = merge((A, log_mass), from_classes(exact, r, rows, memory))
        return A, log_mass, torch.maximum(log_mass, highest)

    changed = in_blocks(with_new, old.rows, kept.A, kept.log_mass, kept.highest)
    everything = torch.cat([old.rows, rows])
    got, mass = from_classes(exact, rows, everything, memory)
    A, log_mass, highest = (torch.cat(pair) for pair in zip(changed, (got, mass, mass), strict=True))
    keys, values = (torch.cat(p) for p in zip((old.keys.T, old.values), keys_and_values(exact, rows), strict=True))
    terms = complete(exact, everything, keys, values, A, log_mass)
    return dataclasses.replace(kept, terms=terms, A=A, log_mass=log_mass, highest=highest)


def remove(kept: KeptTerms, staying: Tensor, memory: float) -> KeptTerms:
    """Terms of the classes at these places [n]: the keys of all others are taken out of their attention."""
    old, exact = kept.terms, kept.exact
    going = torch.ones(len(old.rows), dtype=torch.bool, device=staying.device)
    going[staying] = False
    gone = old.rows[going]

    def without(r: Tensor, A: Tensor, log_mass: Tensor) -> tuple[Tensor, Tensor]:
        got, mass = from_classes(exact, r, gone, memory)
        share = (mass - log_mass).exp()  # of the attention that goes
        return (A - share * got) / (1 - share), log_mass + torch.log1p(-share)

    rows, highest = old.rows[staying], kept.highest[staying]
    A, log_mass = in_blocks(without, rows, kept.A[staying], kept.log_mass[staying])
    # where the difference is small against what it was taken from, its first digits are lost
    worn = ~(log_mass > highest - WORN).squeeze(1)  # also where nothing is left, or less
    if worn.any():
        A[worn], log_mass[worn] = from_classes(exact, rows[worn], rows, memory)
        highest[worn] = log_mass[worn]
    terms = complete(exact, rows, old.keys.T[staying], old.values[staying], A, log_mass)
    return dataclasses.replace(kept, terms=terms, A=A, log_mass=log_mass, highest=highest)


def from_classes(exact: Weights, asking: Tensor, rows: Tensor, memory: float) -> tuple[Tensor, Tensor]:
    """What asking tokens [n, d] get from classes with these rows [C, d], and its log-mass: [n, d], [n, 1] in float64"""
    asking, rows = asking.double(), rows.double()
    if len(asking) > len(rows):
        got, log_mass = attend_in_blocks(asking, *exact.keys_and_values(rows), memory)
        return got, log_mass
    # <x, W r> = <W^T x, r>: it is cheaper to project what asks
    mean, log_mass = attend_in_blocks(asking @ exact.key, rows, rows, memory)
    return F.linear(mean, exact.value, exact.bias), log_mass


def keys_and_values(exact: Weights, rows: Tensor) -> tuple[Tensor, ...]:
    """[C, d], [C, d] in the precision of the rows"""
    return in_blocks(lambda r: tuple(x.to(r) for x in exact.keys_and_values(r.double())), rows)


def survivors(old: Tensor, new: Tensor) -> Tensor:
    """Places of old rows [C, d], rising, that the new rows [C', d] begin with: those not forgotten."""
    if same(old, new[: len(old)]):
        return torch.arange(len(old), device=old.device)
    marks, places, i = hashes(old), [], 0
    for mark in hashes(new):
        try:
            i = marks.index(mark, i) + 1
        except ValueError:  # this row is new, and so are those after it
            break
        places.append(i - 1)
    found = torch.tensor(places, dtype=torch.long, device=old.device)
    return found if same(old[found], new[: len(found)]) else found[:0]  # two rows of one hash are a reason to give up


def hashes(rows: Tensor) -> list[int]:
    """Of the bytes of every row"""
    rows = rows.detach().cpu().contiguous()
    known = rows.view(torch.int16) if rows.dtype == torch.bfloat16 else rows  # which NumPy has not
    return [hash(row.tobytes()) for row in known.numpy()]


def holds(kept: KeptTerms, calibrator: Transformer) -> bool:
    """Whether the weights are those that the terms were made from."""
    then, now = kept.weights, calibrator
    return (then.eps, then.cosine, then.scale) == (now.layer_norm.eps, now.cosine, now.scale) and all(
        map(same, kept.made_from, parameters(calibrator))
    )


def same(a: Tensor, b: Tensor) -> bool:
    if a.dtype != b.dtype or a.device != b.device:
        return False
    if a.numel() > 2**12 and pairs_up(a) and pairs_up(b):
        a, b = a.view(torch.int64), b.view(torch.int64)  # two at a time take half the time
    return torch.equal(a, b)


def pairs_up(x: Tensor) -> bool:
    """Whether float32 numbers can be seen as half as many of eight bytes."""
    even = x.shape[-1] % 2 == int(x.storage_offset()) % 2 == 0
    return even and x.dtype == torch.float32 and x.is_contiguous()
