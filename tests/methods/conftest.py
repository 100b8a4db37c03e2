from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from fscil import methods
from fscil.benchmark import Benchmark
from fscil.engine import Engine, Stage
from fscil.methods import Context, Method
from fscil.settings import make

# short enough for a whole method to take a fraction of a second; a method uses the settings that it knows
SHORT: dict[str, Any] = {
    "epochs": 1, "lr": 0.02, "batch": 16, "augmentation": "basic", "fake_phases": 2, "fake_way": 1, "fake_shot": 2,
    "fake_queries": 1, "meta_steps": 4, "meta_batch_steps": 2, "session_epochs": 2, "calibrator_lr": 5e-3,
    "gas_steps": 50,
}  # fmt: skip


class RecordingEngine(Engine):
    """Trains nothing, but keeps the stages that it was given."""

    def train(self, stage: Stage) -> None:
        self.stages = [*getattr(self, "stages", []), stage]
        self.seconds[stage.name] = {"seconds": 0.0, "cached": False}
        self.captured.append(False)


@pytest.fixture
def make_method() -> Callable[..., Method]:
    """make_method(name, benchmark, seed=1, engine=None, **settings): a method that has learned nothing yet."""

    def build(name: str, benchmark: Benchmark, seed: int = 1, engine: Engine | None = None, **settings: Any) -> Method:
        cls = methods.get(name)
        known = {field.name for field in dataclasses.fields(cls.Settings)}
        assert set(settings) <= known
        values = {**{key: value for key, value in SHORT.items() if key in known}, **settings}
        engine = engine or Engine(seed=seed, console=Console(quiet=True))
        return cls(make(cls.Settings, values), Context(engine, benchmark.mean, benchmark.std))

    return build


@pytest.fixture
def recording_engine() -> RecordingEngine:
    return RecordingEngine(console=Console(quiet=True))
