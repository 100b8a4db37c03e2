"""Stage: something to train, described to the engine by plain data and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from fscil.engine.schedule import Schedule

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class ParameterGroup:
    parameters: list[nn.Parameter]
    lr: float


@dataclass(frozen=True)
class Stage:
    """Segments (epochs, or parts of long ones) with the same number of steps each; the last one may have fewer.

    `prepare` returns all data of a segment at once, as tensors whose first dimension is the step, so that the loop over
    the steps only touches the device. It must depend on nothing but its argument: that is what makes a resumed run
    equal an uninterrupted one. `loss` maps one step's slice of that data to a scalar.
    """

    name: str
    module: nn.Module  # all trained parameters and all buffers: what checkpoints hold
    groups: list[ParameterGroup]
    schedule: Schedule
    segments: int
    steps: int  # per segment; in the last one, as many as its data has
    prepare: Callable[[int], Mapping[str, Tensor]]
    loss: Callable[[Batch], Tensor]
    momentum: float = 0.9
    weight_decay: float = 5e-4
    nesterov: bool = True
    after: Callable[[int], None] | None = None  # called after each segment; may change the module's tensors, in place


def steps_at_once(steps: int, step_bytes: int, most_bytes: int, most: int | None = None) -> int:
    """How many of a stage's (or an epoch's) steps make a segment: all, or about equal parts that fit into most_bytes.

    It is never more than `most`, if that is given. It does not depend on where the data comes from, so streamed and
    resident images are split in the same way.
    """
    most = min(most or steps, max(1, most_bytes // max(1, step_bytes)))
    segments = -(-steps // most)
    return -(-steps // segments)
