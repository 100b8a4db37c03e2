"""Class-side terms that are kept from one prediction to the next, and updated as classes are added and removed.

Kept terms are valid if the rows and weights they were made from equal the current ones, element by element. The
comparison is cheap next to encoding an image, and catches everything: gradient steps, replayed CUDA graphs, loaded
states, moves to another device, deep copies, writes into `.data`.

A new class adds one key to every other class's attention, and removing a class takes its key away, so an update costs
time linear in the number of classes. Terms are updated in float64 and rounded at the end, so errors do not build up,
and predictions do not depend on the order in which classes were added.

Terms are immutable and an update returns new ones, so threads may predict at the same time: at worst, two of them
build the same terms.
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

WORN = math.log(8)  # a row whose mass fell to an eighth has lost three bits of precision: its attention is recomputed
AFRESH = 4  # if more than one row in four changed, rebuilding everything is about as cheap


@dataclass(frozen=True)
class KeptTerms:
    made_from: tuple[Tensor, ...]  # copies of the calibrator's parameters
    weights: Weights
    terms: ClassTerms
    exact: Weights  # float64, as all below
    A: Tensor  # [C, d]
    log_mass: Tensor  # [C, 1]
    highest: Tensor  # value of log_mass since the row's attention was last computed in full [C, 1]


def update(kept: KeptTerms | None, calibrator: Transformer, rows: Tensor) -> KeptTerms:
    """Terms for rows [C, d], C > 0: the kept ones if still valid, else updated ones, else ones built from scratch."""
    if kept is None or not same_weights(kept, calibrator):
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
    """Terms from scratch, in time quadratic in C."""
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
    """Terms with new rows [n, d] appended: each adds a key for all classes, and attends to all of them."""
    old, exact = kept.terms, kept.exact

    def with_new(r: Tensor, A: Tensor, log_mass: Tensor, highest: Tensor) -> tuple[Tensor, ...]:
        A, log_mass = merge((A, log_mass), from_classes(exact, r, rows, memory))
        return A, log_mass, torch.maximum(log_mass, highest)

    updated = in_blocks(with_new, old.rows, kept.A, kept.log_mass, kept.highest)
    everything = torch.cat([old.rows, rows])
    attended, mass = from_classes(exact, rows, everything, memory)
    A, log_mass, highest = (torch.cat(pair) for pair in zip(updated, (attended, mass, mass), strict=True))
    keys, values = (torch.cat(p) for p in zip((old.keys.T, old.values), keys_and_values(exact, rows), strict=True))
    terms = complete(exact, everything, keys, values, A, log_mass)
    return dataclasses.replace(kept, terms=terms, A=A, log_mass=log_mass, highest=highest)


def remove(kept: KeptTerms, staying: Tensor, memory: float) -> KeptTerms:
    """Terms of the classes at these indices [n]: the keys of all others are removed from their attention."""
    old, exact = kept.terms, kept.exact
    going = torch.ones(len(old.rows), dtype=torch.bool, device=staying.device)
    going[staying] = False
    gone = old.rows[going]

    def without(r: Tensor, A: Tensor, log_mass: Tensor) -> tuple[Tensor, Tensor]:
        attended, mass = from_classes(exact, r, gone, memory)
        share = (mass - log_mass).exp()  # of the attention that went to removed classes
        return (A - share * attended) / (1 - share), log_mass + torch.log1p(-share)

    rows, highest = old.rows[staying], kept.highest[staying]
    A, log_mass = in_blocks(without, rows, kept.A[staying], kept.log_mass[staying])
    # the difference of two nearly equal numbers has lost its leading digits
    worn = ~(log_mass > highest - WORN).squeeze(1)  # also where it is zero or less (NaN after log1p)
    if worn.any():
        A[worn], log_mass[worn] = from_classes(exact, rows[worn], rows, memory)
        highest[worn] = log_mass[worn]
    terms = complete(exact, rows, old.keys.T[staying], old.values[staying], A, log_mass)
    return dataclasses.replace(kept, terms=terms, A=A, log_mass=log_mass, highest=highest)


def from_classes(exact: Weights, tokens: Tensor, rows: Tensor, memory: float) -> tuple[Tensor, Tensor]:
    """What tokens [n, d] attend to among classes with these rows [C, d], and its log-mass: [n, d], [n, 1] in float64"""
    tokens, rows = tokens.double(), rows.double()
    if len(tokens) > len(rows):
        attended, log_mass = attend_in_blocks(tokens, *exact.keys_and_values(rows), memory)
        return attended, log_mass
    # <x, W r> = <W^T x, r>: with fewer tokens than rows it is cheaper to project the tokens
    mean, log_mass = attend_in_blocks(tokens @ exact.key, rows, rows, memory)
    return F.linear(mean, exact.value, exact.bias), log_mass


def keys_and_values(exact: Weights, rows: Tensor) -> tuple[Tensor, ...]:
    """[C, d], [C, d] in the precision of the rows"""
    return in_blocks(lambda r: tuple(x.to(r) for x in exact.keys_and_values(r.double())), rows)


def survivors(old: Tensor, new: Tensor) -> Tensor:
    """Ascending indices of the old rows [C, d] that are still there: those that the new rows [C', d] begin with."""
    if same(old, new[: len(old)]):
        return torch.arange(len(old), device=old.device)
    marks, places, i = hashes(old), [], 0
    for mark in hashes(new):
        try:
            i = marks.index(mark, i) + 1
        except ValueError:  # this row is new, and so are all after it
            break
        places.append(i - 1)
    found = torch.tensor(places, dtype=torch.long, device=old.device)
    return found if same(old[found], new[: len(found)]) else found[:0]  # a hash collision: build from scratch


def hashes(rows: Tensor) -> list[int]:
    """A hash of the bytes of every row"""
    rows = rows.detach().cpu().contiguous()
    known = rows.view(torch.int16) if rows.dtype == torch.bfloat16 else rows  # NumPy has no bfloat16
    return [hash(row.tobytes()) for row in known.numpy()]


def same_weights(kept: KeptTerms, calibrator: Transformer) -> bool:
    """Whether the terms were made from the calibrator's current weights."""
    then, now = kept.weights, calibrator
    mine = (then.eps, then.cosine, then.scale, then.query_length)
    its = (now.layer_norm.eps, now.cosine, now.scale, now.query_length)
    return mine == its and all(map(same, kept.made_from, parameters(calibrator)))


def same(a: Tensor, b: Tensor) -> bool:
    if a.dtype != b.dtype or a.device != b.device:
        return False
    if a.numel() > 2**12 and pairs_up(a) and pairs_up(b):
        a, b = a.view(torch.int64), b.view(torch.int64)  # comparing two numbers at once takes half the time
    return torch.equal(a, b)


def pairs_up(x: Tensor) -> bool:
    """Whether float32 numbers can be viewed as half as many of eight bytes."""
    even = x.shape[-1] % 2 == int(x.storage_offset()) % 2 == 0
    return even and x.dtype == torch.float32 and x.is_contiguous()
