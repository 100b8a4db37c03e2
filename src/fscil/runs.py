"""Runs: one method on one benchmark with one seed, and the folder that holds its files."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from fscil import code_version, datasets, distributed, methods, run_lock
from fscil.answers import Answers
from fscil.benchmark import Benchmark, validation_benchmark
from fscil.config import Config, read_config, to_toml
from fscil.device import choose_device
from fscil.engine import Engine
from fscil.engine.checkpoint import save_tensors
from fscil.errors import UserError
from fscil.files import write_atomically
from fscil.model_folder import save_model
from fscil.protocol import learn_base, run_protocol
from fscil.report.curve import write_curve
from fscil.report.html import write_report
from fscil.results import Result, read_result, write_result
from fscil.run_facts import data_facts, summarise_run

__all__ = ["RunEnvironment", "choose_device", "finish", "new_folder", "resume", "start"]


@dataclass(frozen=True)
class RunEnvironment:
    """Where a run computes, reads and writes."""

    device: torch.device
    folder: Path
    root: Path | None = None  # of the datasets
    checkpoint_seconds: float = 20.0
    at_once: int = 1  # runs of a grid, each in a process of its own


def new_folder(config: Config) -> Path:
    """The default folder of a run; the last part keeps runs apart that start in the same second."""
    named = f"{config.preset}-{config.benchmark}-seed{config.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    return Path("runs") / f"{named}-{secrets.token_hex(2)}"


def start(config: Config, environment: RunEnvironment, console: Console) -> Result:
    """Start a new run in a folder that holds no other run."""
    # before the lock, too: a start that is refused must not be in the way of a process that resumes that other run
    distributed.broadcast(lambda: check_unused(environment.folder))
    with run_lock.held(environment.folder):
        return start_here(config, environment, console)


def resume(environment: RunEnvironment, console: Console) -> Result:
    """Finish an interrupted run; a finished one is read, not repeated."""
    folder = environment.folder
    distributed.broadcast(lambda: read_config(folder / "config.toml"))  # only a run's folder is locked
    if result := distributed.broadcast(lambda: read_finished(folder)):
        return result
    with run_lock.held(folder):
        return resume_here(environment, console)


def finish(config: Config, environment: RunEnvironment, console: Console) -> Result:
    """Start, resume or just read a run, depending on its folder, which must not hold a run of another configuration."""
    folder = environment.folder
    if distributed.broadcast(lambda: holds(config, folder)) and (
        result := distributed.broadcast(lambda: read_finished(folder))
    ):
        return result
    with run_lock.held(folder):
        if distributed.broadcast(lambda: holds(config, folder)):
            return resume_here(environment, console)
        return start_here(config, environment, console)


def holds(config: Config, folder: Path) -> bool:
    """Whether the folder holds this run; one that holds another is refused."""
    path = folder / "config.toml"
    if not os.path.lexists(path):
        return False
    if read_config(path).hash != config.hash:
        raise UserError(f"{folder} holds a run with other settings; choose another --out or delete that folder")
    return True


def read_finished(folder: Path) -> Result | None:
    """The result of a finished run, whose folder needs no lock; None if it is not finished."""
    if not os.path.lexists(folder / "result.json"):
        return None
    result = read_result(folder)
    if os.path.isdir(folder / "checkpoint"):  # it was killed between its last two files, or is just about to end
        lock = run_lock.RunLock(folder)
        with suppress(UserError):
            lock.take()
            drop_checkpoints(folder)
        lock.release()
    return result


def start_here(config: Config, environment: RunEnvironment, console: Console) -> Result:
    """The same as start, in a folder whose lock is held."""
    distributed.broadcast(lambda: check_unused(environment.folder))
    try:
        return execute(config, environment, console)
    except UserError:
        if distributed.is_rank_zero():
            forget_refused(environment.folder)
        raise


def resume_here(environment: RunEnvironment, console: Console) -> Result:
    """The same as resume. Another process may have finished the run before this one got the lock."""
    folder = environment.folder
    config = distributed.broadcast(lambda: read_config(folder / "config.toml"))
    finished = distributed.broadcast(lambda: read_result(folder) if os.path.lexists(folder / "result.json") else None)
    return finished or execute(config, environment, console)


def check_unused(folder: Path) -> None:
    held = [name for name in ("checkpoint", "result.json", "metrics.jsonl", "model") if os.path.lexists(folder / name)]
    if held and not os.path.lexists(folder / "config.toml"):
        raise UserError(
            f"{folder} holds {held[0]} of a run without its config.toml; delete it, or choose another --out"
        )
    for name in ("config.toml", *held):
        if os.path.lexists(folder / name):
            raise UserError(
                f"{folder} already holds a run; continue it with --resume {folder}, or choose another --out"
            )
    for name in ("predictions.safetensors", "curve.png", "report.html"):
        if os.path.lexists(folder / name):
            raise UserError(f"{folder / name} would be overwritten; choose another --out, or move that file")


def forget_refused(folder: Path) -> None:
    """Remove a run that was refused before it began, so that it does not block the corrected one."""
    with suppress(OSError):
        if {file.name for file in folder.iterdir()} <= {"config.toml", run_lock.NAME}:
            (folder / "config.toml").unlink(missing_ok=True)


@lru_cache(maxsize=1)
def read_dataset(name: str, options: Any, root: Path | None) -> Benchmark:
    """Read once for all runs of a comparison."""
    return datasets.get(name).load(options, root)


def load_benchmark(config: Config, root: Path | None) -> Benchmark:
    options = config.dataset_options()
    benchmark = read_dataset(config.benchmark, options, datasets.data_root(root))
    if config.run_settings().validation == "classes":
        benchmark = validation_benchmark(benchmark, trial=options.trial)
    return benchmark


def execute(config: Config, environment: RunEnvironment, console: Console) -> Result:
    """Every rank of a run does all of this; only rank 0 writes."""
    started = time.perf_counter()
    folder, run, method_class = environment.folder, config.run_settings(), methods.get(config.method)
    resumed = os.path.isdir(folder / "checkpoint")
    benchmark = load_benchmark(config, environment.root).to(environment.device)
    # a run that finds no data leaves nothing behind
    distributed.broadcast(lambda: write_config(config, folder / "config.toml"))
    for warning in benchmark.warnings:
        console.print(f"warning: {warning}", highlight=False, soft_wrap=True)
    engine = Engine(
        device=environment.device,
        seed=config.seed,
        folder=folder,
        bfloat16=environment.device.type == "cuda" and run.precision == "auto",
        segment_bytes=run.segment_mib * 2**20,
        checkpoint_seconds=environment.checkpoint_seconds,
        console=console,
        # checkpoints of other settings, other data or other code are refused
        identity=f"{config.hash} {benchmark.split_checksum} {len(benchmark.test_labels)}",
        code=f"{code_version.digest_of_parts(code_version.RUN)} {code_version.digest_of_sources(method_class)}",
    )
    engine.seconds["read"] = {"seconds": round(time.perf_counter() - started, 3), "cached": False}
    if distributed.world_size() > 1:
        agreed = {"configuration": config.hash, "device": environment.device.type, **data_facts(benchmark)}
        distributed.check_agreement(agreed)
    method = build_method(config, benchmark, engine)
    found = learn_and_test(method, benchmark, run.trials, run.base_margin)
    result = summarise_run(config, folder, environment.device, benchmark, method, found)

    def write() -> None:
        kept = {"labels": benchmark.test_labels, **found[0].tensors()}
        smaller = {name: each if each.is_floating_point() else each.to(torch.int32) for name, each in kept.items()}
        save_tensors(folder / "predictions.safetensors", smaller, {"benchmark": benchmark.name})
        save_model(method.model, config, result, folder / "model")
        write_curve([result], folder / "curve.png")
        write_report([result], folder / "report.html")
        if not resumed:  # otherwise only part of the time was spent in this process
            engine.seconds["total"] = {"seconds": round(time.perf_counter() - started, 3), "cached": False}
        write_result(result, folder / "result.json")  # its presence says that the run is complete
        drop_checkpoints(folder)

    distributed.broadcast(write)
    return result


def build_method(config: Config, benchmark: Benchmark, engine: Engine) -> methods.Method:
    """Refuses settings that do not suit the benchmark or this machine."""
    method = methods.get(config.method)(
        config.method_settings(), methods.Context(engine, benchmark.mean, benchmark.std)
    )
    method.check_sessions([session.announced() for session in benchmark.sessions])
    method.memory.check_budget(len(benchmark.class_names), benchmark.seen(0))
    return method


def check(config: Config, environment: RunEnvironment) -> None:
    """Refuse what the run would refuse before it trains; nothing is written."""
    build_method(config, load_benchmark(config, environment.root), Engine(device=environment.device, seed=config.seed))


def learn_and_test(method: methods.Method, benchmark: Benchmark, trials: int, base_margin: float) -> dict[int, Answers]:
    """Answers in every trial and, as 0, in the standard draw; each session's accuracy is logged to the metrics."""
    engine, labels = method.engine, benchmark.test_labels.cpu()

    counted = 0.0  # the clock when what was spent was last added

    def clock() -> None:
        """Add what was spent in sessions since the last call; checkpoints keep the sum."""
        nonlocal counted
        now, before = time.perf_counter(), engine.seconds.get("sessions", {"seconds": 0.0})["seconds"]
        engine.seconds["sessions"] = {"seconds": round(before + now - counted, 3), "cached": False}
        counted = now

    def on_session(i: int, predictions: Tensor) -> None:
        clock()
        seen = predictions >= 0
        accuracy = 100 * float((predictions == labels)[seen].float().mean())
        engine.log.write({"stage": "session", "segment": i, "scope": engine.scope, "accuracy": round(accuracy, 3)})

    learn_base(method, benchmark, base_margin)
    counted = time.perf_counter()
    found = run_protocol(method, benchmark, trials, on_session)
    clock()
    return found


def drop_checkpoints(folder: Path) -> None:
    """Delete them, since a finished run is never resumed."""
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)


def write_config(config: Config, path: Path) -> None:
    if not os.path.lexists(path):
        write_atomically(path, to_toml(config).encode())
