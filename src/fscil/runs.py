"""Runs: one method on one benchmark with one seed, and the folder that holds its files."""

from __future__ import annotations

import platform
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

import fscil
from fscil import datasets, distributed, margins, methods
from fscil.answers import Answers
from fscil.benchmark import Benchmark, digest, validation_benchmark
from fscil.config import Config, read_config, to_toml
from fscil.device import choose_device
from fscil.engine import Engine
from fscil.engine.checkpoint import save_tensors
from fscil.errors import UserError
from fscil.files import write_atomically
from fscil.images import StreamedImages, contents_of_copies
from fscil.metrics import summarise
from fscil.model_folder import save_model
from fscil.protocol import learn_base, run_protocol
from fscil.report.curve import write_curve
from fscil.report.html import write_report
from fscil.results import Result, Trial, read_result, write_result

__all__ = ["RunEnvironment", "choose_device", "finish", "new_folder", "resume", "start"]


@dataclass(frozen=True)
class RunEnvironment:
    """Where a run computes, reads and writes."""

    device: torch.device
    folder: Path
    root: Path | None = None  # of the datasets
    checkpoint_seconds: float = 20.0


def new_folder(config: Config) -> Path:
    """The default folder of a run."""
    return Path("runs") / f"{config.preset}-{config.benchmark}-seed{config.seed}-{time.strftime('%Y%m%d-%H%M%S')}"


def start(config: Config, environment: RunEnvironment, console: Console) -> Result:
    """Start a new run in a folder that holds no other run."""
    distributed.broadcast(lambda: check_unused(environment.folder))
    try:
        return execute(config, environment, console)
    except UserError:
        if distributed.is_rank_zero():
            forget_refused(environment.folder)
        raise


def check_unused(folder: Path) -> None:
    if any((folder / part).exists() for part in ("config.toml", "checkpoint", "result.json", "metrics.jsonl", "model")):
        raise UserError(f"{folder} already holds a run; continue it with --resume {folder}, or choose another --out")


def forget_refused(folder: Path) -> None:
    """Remove a run that was refused before it began, so that it does not block the corrected one."""
    if folder.is_dir() and [file.name for file in folder.iterdir()] == ["config.toml"]:
        with suppress(OSError):
            (folder / "config.toml").unlink()
            folder.rmdir()


def resume(environment: RunEnvironment, console: Console) -> Result:
    """Finish an interrupted run; a finished one is read, not repeated."""
    config, result = distributed.broadcast(lambda: read_run(environment.folder))
    return result or execute(config, environment, console)


def read_run(folder: Path) -> tuple[Config, Result | None]:
    """What is in a run folder; leftovers are cleared away if the run is to be resumed."""
    config = read_config(folder / "config.toml")
    if (folder / "result.json").exists():
        drop_checkpoints(folder)  # in case it was killed between its last two files
        return config, read_result(folder)
    for part in (folder, folder / "checkpoint", folder / "model"):
        for half_written in part.glob(".*.part"):  # left by a killed run
            half_written.unlink(missing_ok=True)
    return config, None


def finish(config: Config, environment: RunEnvironment, console: Console) -> Result:
    """Start, resume or just read a run, depending on its folder, which must not hold a run of another configuration."""
    path = environment.folder / "config.toml"
    held = distributed.broadcast(lambda: read_config(path).hash if path.exists() else None)
    if held is None:
        return start(config, environment, console)
    if held != config.hash:
        raise UserError(
            f"{environment.folder} holds a run with other settings; choose another --out or delete that folder"
        )
    return resume(environment, console)


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
    folder, run = environment.folder, config.run_settings()
    resumed = (folder / "checkpoint").exists()
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
        # a checkpoint of other settings or other data is refused
        identity=f"{config.hash} {benchmark.split_checksum} {len(benchmark.test_labels)}",
    )
    engine.seconds["read"] = {"seconds": round(time.perf_counter() - started, 3), "cached": False}
    if distributed.world_size() > 1:
        agreed = {"configuration": config.hash, "device": environment.device.type, **data_facts(benchmark)}
        distributed.check_agreement(agreed)
    context = methods.Context(engine, benchmark.mean, benchmark.std)
    method = methods.get(config.method)(config.method_settings(), context)
    method.check_sessions(benchmark.sessions)
    method.memory.check_budget(len(benchmark.class_names))
    found = learn_and_test(method, benchmark, run.trials, run.base_margin)
    result = summarise_run(config, environment, benchmark, method, found)

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


def learn_and_test(method: methods.Method, benchmark: Benchmark, trials: int, base_margin: float) -> dict[int, Answers]:
    """Answers in every trial and, as 0, in the standard draw; each session's accuracy is logged to the metrics."""
    engine, labels = method.engine, benchmark.test_labels.cpu()

    def on_session(i: int, predictions: Tensor) -> None:
        seen = predictions >= 0
        accuracy = 100 * float((predictions == labels)[seen].float().mean())
        engine.log.write({"stage": "session", "segment": i, "scope": engine.scope, "accuracy": round(accuracy, 3)})

    learn_base(method, benchmark, base_margin)
    evaluation = time.perf_counter()
    found = run_protocol(method, benchmark, trials, on_session)
    engine.seconds["sessions"] = {"seconds": round(time.perf_counter() - evaluation, 3), "cached": False}
    return found


def summarise_run(
    config: Config,
    environment: RunEnvironment,
    benchmark: Benchmark,
    method: methods.Method,
    found: dict[int, Answers],
) -> Result:
    engine, labels, margin = method.engine, benchmark.test_labels.cpu(), config.run_settings().base_margin
    sizes = [len(session.classes) for session in benchmark.sessions]
    summaries = {trial: summarise(labels, answers.predictions, sizes) for trial, answers in found.items()}
    measured = {trial: margins.measures(answers.scores(labels, sizes), margin) for trial, answers in found.items()}
    trials: list[Trial] = [
        {
            "trial": trial,
            "accuracy": summaries[trial]["accuracy"],
            "harmonic_mean": summaries[trial]["harmonic_mean"],
            "area": measured[trial]["area"],
        }
        for trial in found
        if trial > 0
    ]
    return Result(
        folder=str(environment.folder),
        method=config.method,
        preset=config.preset,
        benchmark=benchmark.name,
        title=benchmark.title,
        augmentation=str(config.settings.get("augmentation", "none")),
        seed=config.seed,
        trial=int(config.options.get("trial", 1)),
        **summaries[0],
        **measured[0],
        seconds=engine.seconds,
        captured=bool(engine.captured) and all(engine.captured),
        parameters={
            "inference": sum(p.numel() for p in method.model.parameters()),
            "training_only": method.training_only_parameters(),
        },
        memory=method.memory.budget,
        exemplars=len(method.memory),
        weights=method.model.spec.weights,
        warnings=list(benchmark.warnings),
        note="; ".join(filter(None, [config.note, *method.notes])),
        config_hash=config.hash,
        changed=config.changed,
        command=config.command,
        versions=versions(),
        device=describe(environment.device),
        split_checksum=benchmark.split_checksum,
        class_names=list(benchmark.class_names),
        classes_per_session=sizes,
        trials=trials,
    )


def drop_checkpoints(folder: Path) -> None:
    """Delete them, since a finished run is never resumed."""
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)


def write_config(config: Config, path: Path) -> None:
    if not path.exists():
        write_atomically(path, to_toml(config).encode())


def versions() -> dict[str, str]:
    known = {name: version(name) for name in ("torch", "torchvision", "numpy")}
    return {"fscil": fscil.__version__, "python": platform.python_version(), **known}


def describe(device: torch.device) -> str:
    one = torch.cuda.get_device_name() if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    return one if distributed.world_size() == 1 else f"{distributed.world_size()} x {one}"


def data_facts(benchmark: Benchmark) -> dict[str, str]:
    """What must be the same on all ranks. Each rank computes it from its own images."""
    facts = {"split": benchmark.split_checksum}
    images = {f"session {i}": (session.images, session.labels) for i, session in enumerate(benchmark.sessions)}
    images["pool of later classes"] = benchmark.pool.images, benchmark.pool.labels
    images["test set"] = benchmark.test_images, benchmark.test_labels
    for name, (its_images, labels) in images.items():
        if isinstance(its_images, StreamedImages):
            facts["decoding"] = its_images.source.recipe
        facts[name] = digest(contents_of_copies(its_images), labels)[:16]
    return facts
