"""Engine: trains stages, with progress, metrics, checkpoints and resumption."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import torch
from rich.console import Console

from fscil import distributed
from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.engine.metrics_log import MetricsLog
from fscil.engine.prefetch import Prefetcher
from fscil.engine.seeds import seed_for
from fscil.engine.stage import Stage
from fscil.engine.stepper import Stepper
from fscil.errors import CannotLearn, UserError
from fscil.progress import stage_progress


class StageTime(TypedDict):
    seconds: float
    cached: bool  # the stage came from the cache, and these are its original seconds


@dataclass
class Engine:
    """Where and how stages are trained; one per run."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    seed: int = 1
    folder: Path | None = None  # the run folder; without one, and on ranks other than 0, nothing is written
    capture: bool = True
    bfloat16: bool = False
    segment_bytes: int = 512 * 2**20  # of data that may be prepared at once
    checkpoint_seconds: float = 20.0
    console: Console = field(default_factory=lambda: Console(stderr=True))
    identity: str = ""  # of the run: checkpoints of a different one are refused
    code: str = ""  # version of the code that trains; another one would give other numbers
    scope: str = ""  # prefix of stage names, for runs that train the same stage several times
    seconds: dict[str, StageTime] = field(default_factory=dict)
    captured: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not distributed.is_rank_zero():
            self.folder = None
        self.log = MetricsLog(self.folder / "metrics.jsonl" if self.folder else None)
        self.saved = time.perf_counter()  # when a checkpoint was last written
        self.trained: set[str] = set()

    # -- checkpoints ---------------------------------------------------------------------------------------------
    def checkpoint_path(self, name: str) -> Path | None:
        return self.folder / "checkpoint" / f"{name}.safetensors" if self.folder else None

    def checkpoint_due(self) -> bool:
        return self.folder is not None and time.perf_counter() - self.saved >= self.checkpoint_seconds

    def save_checkpoint(self, name: str, tensors: dict[str, torch.Tensor], about: dict[str, Any]) -> None:
        if path := self.checkpoint_path(name):
            save_tensors(path, tensors, {**about, "name": name, "run": self.identity, "code": self.code})
            self.saved = time.perf_counter()

    def load_checkpoint(self, name: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """Read by rank 0 and broadcast to all ranks; None if there is no such checkpoint."""
        return distributed.broadcast(lambda: self._read_checkpoint(name))

    def _read_checkpoint(self, name: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        path = self.checkpoint_path(name)
        if path is None or not os.path.lexists(path):
            return None
        tensors, about = load_tensors(path)
        if (about.get("name"), about.get("run")) != (name, self.identity):
            raise UserError(
                f"{path} is a checkpoint of other settings or other data; start again in another folder, or undo "
                "the change"
            )
        if about.get("code") != self.code:
            raise UserError(
                f"{path} was written by another version of fscil; finish the run with that one, or start again in "
                "another folder"
            )
        return tensors, about

    def drop_checkpoints(self, *kept: str) -> None:
        """Delete the checkpoints that a later one has made obsolete."""
        if self.folder is None:
            return
        for path in (self.folder / "checkpoint").glob("*.safetensors"):
            if path.stem not in kept:
                path.unlink(missing_ok=True)

    # -- training ------------------------------------------------------------------------------------------------
    def train(self, stage: Stage) -> None:
        """Train the stage to its end, from its checkpoint if there is one."""
        name = self.scope + stage.name
        if name in self.trained:
            raise ValueError(f"the stage {name!r} was trained already; each stage of a run needs a unique name")
        self.trained.add(name)
        stepper = Stepper(stage, self.device, self.capture)
        checkpoint = f"stage-{name}"
        first, spent, captured = self._resume(checkpoint, stepper)
        distributed.broadcast_module(stage.module)
        self.log.rewind(name, first)
        prefetcher = Prefetcher(stage, self.device)
        started = time.perf_counter()
        with stage_progress(self.console, name, stage.segments, first, spent) as progress:
            for segment in range(first, stage.segments):
                torch.manual_seed(seed_for(self.seed, stage.name, segment))  # dropout; the data has its own generators
                loss = run_segment(stepper, segment, prefetcher.take(segment))
                prefetcher.start(segment + 1)
                mean_loss = float(distributed.wait_for(loss))  # the only place where the host waits for the device
                if not math.isfinite(mean_loss):
                    raise CannotLearn(
                        f"{stage.name} diverged in segment {segment + 1} (loss {mean_loss}); lower the learning rate"
                    )
                if stage.after is not None:
                    stage.after(segment)
                elapsed = spent + time.perf_counter() - started
                self.log.write(
                    {"stage": name, "segment": segment + 1, "of": stage.segments, "loss": round(mean_loss, 6),
                     "lr_factor": stage.schedule(segment * stage.steps), "seconds": round(elapsed, 3)}
                )  # fmt: skip
                progress.update(segment + 1, mean_loss)
                captured = captured and stepper.graph is not None  # in all segments, including those before a resume
                if self.checkpoint_due():
                    about = {"segments_done": segment + 1, "seconds": elapsed, "captured": captured}
                    self.save_checkpoint(checkpoint, stepper.state(), about)
        self.seconds[name] = {"seconds": round(spent + time.perf_counter() - started, 3), "cached": False}
        self.captured.append(captured)

    def _resume(self, checkpoint: str, stepper: Stepper) -> tuple[int, float, bool]:
        """Load a stage's checkpoint: segments done, seconds spent, and whether all of them were captured."""
        held = self.load_checkpoint(checkpoint)
        if held is None:
            return 0, 0.0, True
        tensors, about = held
        try:
            stepper.load_state(tensors)
            return int(about["segments_done"]), float(about["seconds"]), bool(about["captured"])
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(
                f"checkpoint/{checkpoint}.safetensors does not fit its stage; delete it to start that part again"
            ) from error


def run_segment(stepper: Stepper, segment: int, data: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The stepper's, but a user's mistake that only torch notices is one line."""
    try:
        return stepper.run_segment(segment, data)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise CannotLearn(
            f"{stepper.stage.name}: a step has a single image, which this encoder cannot normalise at that size; raise "
            "what sets the images of a step (batch, session_batch, way or shot)"
        ) from error
