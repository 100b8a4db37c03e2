"""Engine: trains stages, with progress, metrics, checkpoints and resumption."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import torch
from rich.console import Console

from fscil import distributed
from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.engine.metrics_log import MetricsLog
from fscil.engine.prefetch import Prefetcher
from fscil.engine.progress import stage_progress
from fscil.engine.seeds import seed_for
from fscil.engine.stage import Stage
from fscil.engine.stepper import Stepper
from fscil.errors import UserError


class StageTime(TypedDict):
    seconds: float
    cached: bool  # the stage came from the cache, and these are its original seconds


@dataclass
class Engine:
    """Where and how stages are trained; one per run."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    seed: int = 1
    folder: Path | None = None  # the run folder; without one, and in other processes than the first, nothing is written
    capture: bool = True
    bfloat16: bool = False
    segment_bytes: int = 512 * 2**20  # of data that may be prepared at once
    checkpoint_seconds: float = 20.0
    console: Console = field(default_factory=lambda: Console(stderr=True))
    scope: str = ""  # stands before the names of stages, where one run trains the same stage several times
    seconds: dict[str, StageTime] = field(default_factory=dict)
    captured: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not distributed.is_rank_zero():
            self.folder = None
        self.log = MetricsLog(self.folder / "metrics.jsonl" if self.folder else None)

    def checkpoint_path(self, stage: str) -> Path | None:
        return self.folder / "checkpoint" / f"{self.scope}{stage}.safetensors" if self.folder else None

    def train(self, stage: Stage) -> None:
        """Train the stage to its end, from its checkpoint if there is one."""
        path = self.checkpoint_path(stage.name)
        stepper: Stepper | None = None
        first, spent, captured = 0, 0.0, True
        held = distributed.broadcast(lambda: (path, *load_tensors(path)) if path and path.exists() else None)
        if held:
            source, tensors, about = held
            stepper = Stepper(stage, self.device, self.capture)
            try:
                first, spent, captured = about["segments_done"], about["seconds"], about["captured"]
                stepper.load_state(tensors)
            except (KeyError, RuntimeError) as error:
                raise UserError(
                    f"{source} is no checkpoint of this {stage.name} stage; delete it to start that part again"
                ) from error
            if first >= stage.segments:
                self._finish(stage.name, spent, captured)
                return
        stepper = stepper or Stepper(stage, self.device, self.capture)
        distributed.broadcast_module(stage.module)
        name = self.scope + stage.name
        self.log.rewind(name, first)

        prefetcher = Prefetcher(stage, self.device)
        started = saved = time.perf_counter()
        with stage_progress(self.console, name, stage.segments, first, spent) as progress:
            for segment in range(first, stage.segments):
                torch.manual_seed(seed_for(self.seed, stage.name, segment))  # dropout; the data has its own generators
                loss = stepper.run_segment(segment, prefetcher.take(segment))
                prefetcher.start(segment + 1)
                mean_loss = float(distributed.wait_for(loss))  # here the host waits for the device, and nowhere else
                if not math.isfinite(mean_loss):
                    raise UserError(
                        f"{stage.name} diverged in segment {segment + 1} (loss {mean_loss}); lower the learning rate"
                    )
                now = time.perf_counter()
                elapsed = spent + now - started
                self.log.write(
                    {"stage": name, "segment": segment + 1, "of": stage.segments, "loss": round(mean_loss, 6),
                     "lr_factor": stage.schedule(segment * stage.steps), "seconds": round(elapsed, 3)}
                )  # fmt: skip
                progress.update(segment + 1, mean_loss)
                last = segment + 1 == stage.segments
                if path and (last or now - saved >= self.checkpoint_seconds):
                    captured = captured and stepper.graph is not None
                    about = {"segments_done": segment + 1, "seconds": elapsed, "captured": captured}
                    save_tensors(path, stepper.state(), about)
                    saved = now
        captured = captured and stepper.graph is not None  # in all its segments, also those before a resumption
        self._finish(stage.name, spent + time.perf_counter() - started, captured)

    def _finish(self, name: str, seconds: float, captured: bool) -> None:
        self.seconds[self.scope + name] = {"seconds": round(seconds, 3), "cached": False}
        self.captured.append(captured)
