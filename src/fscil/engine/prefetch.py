"""On a GPU, prepare a segment's data while the previous segment is trained on."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fscil.engine.stage import Stage


class Prefetcher:
    """Prepares the next segment in its own stream; on a CPU, where that gains nothing, only on demand."""

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
                except Exception as error:  # raised when the segment's turn comes, so that the previous one is not lost
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
            tensor.record_stream(training)  # no reuse of its memory until this segment has been trained on
        return data
