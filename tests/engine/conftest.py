from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from fscil.engine import Engine, Stage
from fscil.engine.schedule import decay_every
from fscil.engine.seeds import seed_for
from fscil.engine.stage import Batch, ParameterGroup

SEGMENTS, STEPS = 5, 3


class Network(nn.Module):
    """Everything that makes resuming hard: batch statistics, dropout, its own memory layout, a frozen part."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(4, 3)
        self.frozen = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.conv(x.to(memory_format=torch.channels_last)))).mean((2, 3))
        return self.frozen(self.head(self.dropout(y)))


@pytest.fixture
def make_stage() -> Callable[..., Stage]:
    """make_stage(...): a stage with a fresh network; every call gives the same one. Fields can be overridden."""

    def build(prepare: Callable[[int], Batch] | None = None, **fields: Any) -> Stage:
        torch.manual_seed(5)
        network = Network()
        network.frozen.requires_grad_(False)
        network.train()

        def data(segment: int) -> Batch:
            generator = torch.Generator().manual_seed(seed_for("data", segment))
            return {
                "images": torch.randn(STEPS, 8, 3, 6, 6, generator=generator),
                "labels": torch.randint(0, 3, (STEPS, 8), generator=generator),
            }

        values: dict[str, Any] = {
            "name": "practice", "module": network,
            "groups": [
                ParameterGroup([*network.conv.parameters(), *network.norm.parameters()], 0.1),
                ParameterGroup(list(network.head.parameters()), 0.02),
            ],
            "schedule": decay_every(4), "segments": SEGMENTS, "steps": STEPS, "prepare": prepare or data,
            "loss": lambda batch: F.cross_entropy(network(batch["images"]), batch["labels"]),
        }  # fmt: skip
        return Stage(**{**values, **fields})

    return build


@pytest.fixture
def make_engine(tmp_path: Path) -> Callable[..., Engine]:
    def build(folder: str = "run", **fields: Any) -> Engine:
        (tmp_path / folder).mkdir(exist_ok=True)
        values = {"checkpoint_seconds": 0.0, "console": Console(quiet=True), **fields}
        return Engine(folder=tmp_path / folder, **values)

    return build
