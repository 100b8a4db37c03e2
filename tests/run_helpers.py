"""Short runs of the tiny dataset and of digits, and a power cut in the middle of one."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console

from fscil import methods, runs
from fscil.config import overrides_of, resolve
from fscil.engine.metrics_log import MetricsLog
from fscil.files import write_atomically
from fscil.results import Result

SHORT = [
    "epochs=1", "batch=128", "lr=0.05", "meta_steps=2", "fake_way=1", "fake_shot=2", "fake_queries=1",
    "session_epochs=2", "check=false", "gas_steps=100",
]  # fmt: skip
PLUS = ["calibrator=transformer", "base_margin=0.4"]  # of limit-plus: calibrated, whitened, with a margin
PAIRED = ["calibrator=paired", "shift=1", "mirror=true"]
QUIET = Console(quiet=True)
Start = Callable[..., Result]
FEW = ("decoupled-cosine", "finetune", "icarl", "limit")  # class means, training, exemplars, a calibrator


def every_method(*more: Any) -> list[Any]:
    """(name, *more) for every method: FEW are tested by make test, the others by make test-slow."""
    return [pytest.param(name, *more, marks=() if name in FEW else pytest.mark.slow) for name in methods.names()]


def where(folder: Path, checkpoint_seconds: float = 0.0) -> runs.RunEnvironment:
    return runs.RunEnvironment(torch.device("cpu"), folder, checkpoint_seconds=checkpoint_seconds)


def run_on_digits(folder: Path, *settings: str) -> Path:
    config = resolve("limit-plus", "digits", [*overrides_of("limit-plus", "digits", SHORT), *settings])
    with not_drawn():
        runs.start(config, where(folder), QUIET)
    return folder


DRAW = Figure.savefig


@functools.cache
def blank(format: str) -> bytes:
    """A picture of nothing, with the name by which we know ours."""
    picture = io.BytesIO()
    DRAW(Figure(figsize=(1, 1)), picture, format=format, metadata={"Software": "fscil"} if format == "png" else None)
    return picture.getvalue()


@contextmanager
def not_drawn() -> Iterator[None]:
    """Pictures and the reports of runs come out blank: drawing them takes most of the time of a tiny run."""

    def save(_: Figure, file: Any, format: str, **options: Any) -> None:
        file.write(blank(format).decode() if isinstance(file, io.StringIO) else blank(format))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        patch.setattr(runs, "write_curve", lambda results, path: write_atomically(path, blank("png")))
        patch.setattr(runs, "write_report", lambda results, path: write_atomically(path, b"<!doctype html>"))
        yield


@pytest.fixture
def undrawn() -> Iterator[None]:
    with not_drawn():
        yield


@pytest.fixture
def start(tiny_dataset: str, tmp_path: Path) -> Start:
    """start(name, *overrides, folder="run", ...): a run of the tiny dataset, with a checkpoint wherever one can be."""

    def begin(
        name: str,
        *overrides: str,
        folder: str = "run",
        seed: int = 1,
        drawn: bool = False,
        checkpoint_seconds: float = 0.0,
    ) -> Result:
        with nullcontext() if drawn else not_drawn():
            environment = where(tmp_path / folder, checkpoint_seconds)
            return runs.start(resolve(name, tiny_dataset, overrides, seed), environment, QUIET)

    return begin


class PowerCutError(Exception):
    pass


PowerCut = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def power_cut(monkeypatch: pytest.MonkeyPatch) -> PowerCut:
    """with power_cut(lines=n): a run is cut off as soon as its metrics have n lines."""

    @contextmanager
    def at(lines: int) -> Iterator[None]:
        write = MetricsLog.write

        def until(log: MetricsLog, line: dict[str, Any]) -> None:
            write(log, line)
            if log.path and len(log.path.read_text().splitlines()) == lines:
                raise PowerCutError

        with monkeypatch.context() as patch:
            patch.setattr(MetricsLog, "write", until)
            yield

    return at


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
