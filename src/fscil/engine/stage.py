"""Stage: something to train, told to the engine in plain data and functions."""

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
    """A number of segments (epochs, or parts of long ones) of equally many steps; the last one may have fewer.

    `prepare` gives all data of a segment at once, as tensors whose first dimension is the step, so that the loop over
    the steps touches the device alone. It must depend on nothing but its argument: that is what makes a resumed run
    equal an uninterrupted one. `loss` maps one step's slice of that data to a scalar.
    """

    name: str
    module: nn.Module  # all that learns, and all buffers: what checkpoints hold
    groups: list[ParameterGroup]
    schedule: Schedule
    segments: int
    steps: int  # in a segment; as many as its data has, in the last one
    prepare: Callable[[int], Mapping[str, Tensor]]
    loss: Callable[[Batch], Tensor]
    momentum: float = 0.9
    weight_decay: float = 5e-4
    nesterov: bool = True


def steps_at_once(steps: int, step_bytes: int, most_bytes: int, most: int | None = None) -> int:
    """How many of a stage's (or an epoch's) steps make a segment: all, or about equal parts that do not take too much.

    It is never more than `most`, if that is given. Where the data comes from makes no difference, so that streamed and
    resident images are cut alike.
    """
    most = min(most or steps, max(1, most_bytes // max(1, step_bytes)))
    segments = -(-steps // most)
    return -(-steps // segments)
