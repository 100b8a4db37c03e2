"""On a GPU, a segment's data is prepared beside the training on the segment before it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fscil.engine.stage import Stage


class Prefetcher:
    """Prepares the next segment in a stream of its own; on a CPU, where that gains nothing, when it is asked for."""

    def __init__(self, stage: Stage, device: torch.device) -> None:
        self.stage = stage
        self.prepared: dict[int, Mapping[str, Tensor] | Exception] = {}
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self.stream:
            self.stream.wait_stream(torch.cuda.current_stream(device))  # the images must have arrived

    def start(self, segment: int) -> None:
        if self.stream and segment < self.stage.segments:
            with torch.cuda.stream(self.stream):
                try:
                    self.prepared[segment] = self.stage.prepare(segment)
                except Exception as error:  # told when the segment's turn comes: the one before it is not lost
                    self.prepared[segment] = error

    def take(self, segment: int) -> Mapping[str, Tensor]:
        if self.stream is None:
            return self.stage.prepare(segment)
        if segment not in self.prepared:
            self.start(segment)
        data = self.prepared.pop(segment)
        if isinstance(data, Exception):
            raise data
        training = torch.cuda.current_stream(self.stream.device)
        training.wait_stream(self.stream)
        for tensor in data.values():
            tensor.record_stream(training)  # its memory is not for the next segment until this one was trained on
        return data
