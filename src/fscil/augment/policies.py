"""AutoAugment's published policies (Cubuk et al., 2019) as data, and the meaning of their magnitude bins.

A policy has 25 sub-policies of two steps; a step is (operation, probability, magnitude bin of 0 .. 9). Operations
without a magnitude have None for a bin.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from fscil.augment.blends import POORER
from fscil.augment.draws import Draws
from fscil.augment.geometry import GEOMETRIC
from fscil.augment.tables import TABLES

Step = tuple[str, float, int | None]

CIFAR10: tuple[tuple[Step, Step], ...] = (
    (("invert", 0.1, None), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translate_x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear_y", 0.5, 8), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.5, None), ("equalize", 0.9, None)),
    (("shear_y", 0.2, 7), ("posterize", 0.3, 7)),
    (("color", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, None), ("equalize", 0.5, None)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("color", 0.7, 7), ("translate_x", 0.5, 8)),
    (("equalize", 0.3, None), ("autocontrast", 0.4, None)),
    (("translate_y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("color", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, None)),
    (("equalize", 0.2, None), ("autocontrast", 0.6, None)),
    (("equalize", 0.2, None), ("equalize", 0.6, None)),
    (("color", 0.9, 9), ("equalize", 0.6, None)),
    (("autocontrast", 0.8, None), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("color", 0.7, 0)),
    (("solarize", 0.4, 5), ("autocontrast", 0.9, None)),
    (("translate_y", 0.9, 9), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.9, None), ("solarize", 0.8, 3)),
    (("equalize", 0.8, None), ("invert", 0.1, None)),
    (("translate_y", 0.7, 9), ("autocontrast", 0.9, None)),
)

IMAGENET: tuple[tuple[Step, Step], ...] = (
    (("posterize", 0.4, 8), ("rotate", 0.6, 9)),
    (("solarize", 0.6, 5), ("autocontrast", 0.6, None)),
    (("equalize", 0.8, None), ("equalize", 0.6, None)),
    (("posterize", 0.6, 7), ("posterize", 0.6, 6)),
    (("equalize", 0.4, None), ("solarize", 0.2, 4)),
    (("equalize", 0.4, None), ("rotate", 0.8, 8)),
    (("solarize", 0.6, 3), ("equalize", 0.6, None)),
    (("posterize", 0.8, 5), ("equalize", 1.0, None)),
    (("rotate", 0.2, 3), ("solarize", 0.6, 8)),
    (("equalize", 0.6, None), ("posterize", 0.4, 6)),
    (("rotate", 0.8, 8), ("color", 0.4, 0)),
    (("rotate", 0.4, 9), ("equalize", 0.6, None)),
    (("equalize", 0.0, None), ("equalize", 0.8, None)),
    (("invert", 0.6, None), ("equalize", 1.0, None)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
    (("rotate", 0.8, 8), ("color", 1.0, 2)),
    (("color", 0.8, 8), ("solarize", 0.8, 7)),
    (("sharpness", 0.4, 7), ("invert", 0.6, None)),
    (("shear_x", 0.6, 5), ("equalize", 1.0, None)),
    (("color", 0.4, 0), ("equalize", 0.6, None)),
    (("equalize", 0.4, None), ("solarize", 0.2, 4)),
    (("solarize", 0.6, 5), ("autocontrast", 0.6, None)),
    (("invert", 0.6, None), ("equalize", 1.0, None)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
    (("equalize", 0.8, None), ("equalize", 0.6, None)),
)

POLICIES = {"cifar10": CIFAR10, "imagenet": IMAGENET}

OPERATIONS = (*GEOMETRIC, *TABLES, *POORER)  # an operation's number is its position here
NO_OPERATION = -1
SIGNED = {*GEOMETRIC, "brightness", "contrast", "color", "sharpness"}


def magnitude(operation: str, bin_: int | None, size: int) -> float:
    """What a magnitude bin means for images of size x size, before a random sign."""
    share = (bin_ or 0) / 9
    match operation:
        case "shear_x" | "shear_y":
            return 0.3 * share
        case "translate_x" | "translate_y":
            return 150 / 331 * size * share  # at most 150 pixels in an image of 331, as published
        case "rotate":
            return 30 * share
        case "brightness" | "contrast" | "color" | "sharpness":
            return 0.9 * share
        case "posterize":
            return 8.0 - round(4 * share)  # bits kept
        case "solarize":
            return 255 * (1 - share)
    return 0.0


class PolicyTable(NamedTuple):
    """A policy as tensors [25, 2]: sub-policy, step."""

    operation: Tensor  # int64, position in OPERATIONS
    probability: Tensor
    magnitude: Tensor
    signed: Tensor  # bool


@cache
def policy_table(policy: str, size: int) -> PolicyTable:
    steps = [step for pair in POLICIES[policy] for step in pair]

    def tensor(values: list[int] | list[float] | list[bool]) -> Tensor:
        return torch.tensor(values).view(-1, 2)

    return PolicyTable(
        operation=tensor([OPERATIONS.index(name) for name, _, _ in steps]),
        probability=tensor([probability for _, probability, _ in steps]),
        magnitude=tensor([magnitude(name, bin_, size) for name, _, bin_ in steps]),
        signed=tensor([name in SIGNED for name, _, _ in steps]),
    )


def draw(table: PolicyTable, draws: Draws) -> tuple[Tensor, Tensor]:
    """For each image the operations of both steps (int64 [n, 2], NO_OPERATION where skipped) and their magnitudes."""
    chosen = draws.integers(len(table.operation))
    skipped = draws.uniform(2) >= table.probability[chosen]
    negative = draws.uniform(2) < 0.5
    operation = table.operation[chosen].masked_fill(skipped, NO_OPERATION)
    value = table.magnitude[chosen]
    return operation, torch.where(negative & table.signed[chosen], -value, value)
