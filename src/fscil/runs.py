"""Runs: one method on one benchmark with one seed, and the folder that holds all of it."""

from __future__ import annotations

import hashlib
import platform
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
from fscil import datasets, distributed, methods
from fscil.benchmark import Benchmark, validation_benchmark
from fscil.config import Config, read_config, to_toml
from fscil.engine import Engine
from fscil.engine.checkpoint import save_tensors
from fscil.errors import UserError
from fscil.files import write_atomically
from fscil.images import StreamedImages, contents, contents_of_copies
from fscil.metrics import Summary, summarise
from fscil.model_folder import save_model
from fscil.protocol import embed_test_images, run_sessions, run_trials
from fscil.report.curve import write_curve
from fscil.report.html import write_report
from fscil.results import Result, Trial, read_result, write_result


@dataclass(frozen=True)
class RunEnvironment:
    """Where a run computes, reads and writes."""

    device: torch.device
    folder: Path
    root: Path | None = None  # of the datasets
    checkpoint_seconds: float = 20.0
    command: str = ""


def choose_device(name: str | None) -> torch.device:
    if name not in (None, "cpu", "cuda"):
        raise UserError(f"unknown device {name!r}: it is cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("no CUDA device is available here; leave out --device cuda, or install a CUDA build of torch")
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda":
        distributed.select_gpu()
    return device


def start(config: Config, where: RunEnvironment, console: Console) -> Result:
    """A new run in a folder that holds nothing of another one."""
    distributed.broadcast(lambda: check_unused(where.folder))
    try:
        return execute(config, where, console)
    except UserError:
        if distributed.is_rank_zero():
            forget_refused(where.folder)
        raise


def check_unused(folder: Path) -> None:
    if any((folder / part).exists() for part in ("config.toml", "checkpoint", "result.json")):
        raise UserError(f"{folder} already holds a run; go on with --resume {folder}, or choose another --out")


def forget_refused(folder: Path) -> None:
    """A run that was refused before it began must not stand in the way of the corrected one."""
    if folder.is_dir() and [file.name for file in folder.iterdir()] == ["config.toml"]:
        with suppress(OSError):
            (folder / "config.toml").unlink()
            folder.rmdir()


def resume(where: RunEnvironment, console: Console) -> Result:
    """Finish an interrupted run; a finished one is read, not repeated."""
    config, result = distributed.broadcast(lambda: read_run(where.folder))
    return result or execute(config, where, console)


def read_run(folder: Path) -> tuple[Config, Result | None]:
    """What is in a run folder; its leftovers are cleared away if it is to be gone on with."""
    config = read_config(folder / "config.toml")
    if (folder / "result.json").exists():
        return config, read_result(folder)
    for half_written in folder.rglob(".*.part"):  # when it was killed
        half_written.unlink(missing_ok=True)
    return config, None


def finish(config: Config, where: RunEnvironment, console: Console) -> Result:
    """Start, go on with, or just read a run, whatever its folder needs; it must be a run of this very configuration."""
    path = where.folder / "config.toml"
    held = distributed.broadcast(lambda: read_config(path).hash if path.exists() else None)
    if held is None:
        return start(config, where, console)
    if held != config.hash:
        raise UserError(f"{where.folder} holds a run with other settings; choose another --out or delete that folder")
    return resume(where, console)


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


def execute(config: Config, where: RunEnvironment, console: Console) -> Result:
    """Every process of a run does all of this; the first alone writes."""
    started = time.perf_counter()
    resumed = (where.folder / "checkpoint").exists()
    run = config.run_settings()
    benchmark = load_benchmark(config, where.root).to(where.device)
    # a run that finds no data leaves nothing behind
    distributed.broadcast(lambda: write_config(config, where.folder / "config.toml"))
    for warning in benchmark.warnings:
        console.print(f"warning: {warning}", highlight=False)
    engine = Engine(
        device=where.device,
        seed=config.seed,
        folder=where.folder,
        bfloat16=where.device.type == "cuda" and run.precision == "auto",
        segment_bytes=run.segment_mib * 2**20,
        checkpoint_seconds=where.checkpoint_seconds,
        console=console,
    )
    engine.seconds["read"] = {"seconds": round(time.perf_counter() - started, 3), "cached": False}
    context = methods.Context(engine, benchmark.mean, benchmark.std, session_checksum(benchmark))
    if distributed.world_size() > 1:
        distributed.check_agreement(
            {"configuration": config.hash, "device": where.device.type, **data_facts(benchmark)}
        )
    method = methods.get(config.method)(config.method_settings(), context)
    method.check_sessions(benchmark.sessions)
    method.learn_base(benchmark.sessions[0])

    evaluation = time.perf_counter()
    engine.log.rewind("session", -1)

    def on_session(i: int, predictions: Tensor, labels: Tensor) -> None:
        seen = predictions >= 0
        accuracy = 100 * float((predictions == labels.cpu())[seen].float().mean())
        engine.log.write({"stage": "session", "segment": i, "scope": engine.scope, "accuracy": round(accuracy, 3)})

    embeddings = embed_test_images(method, benchmark)
    trials: list[Trial] = []
    for trial, predictions in run_trials(method, benchmark, range(1, run.trials + 1), on_session, embeddings):
        summary = summarise_run(benchmark, predictions)
        trials.append({"trial": trial, "accuracy": summary["accuracy"], "harmonic_mean": summary["harmonic_mean"]})
    predictions = run_sessions(method, benchmark, on_session, embeddings)
    engine.seconds["sessions"] = {"seconds": round(time.perf_counter() - evaluation, 3), "cached": False}

    result = Result(
        method=config.method,
        preset=config.preset,
        benchmark=benchmark.name,
        augmentation=str(config.settings.get("augmentation", "none")),
        seed=config.seed,
        trial=int(config.options.get("trial", 1)),
        **summarise_run(benchmark, predictions),
        seconds=engine.seconds,
        captured=bool(engine.captured) and all(engine.captured),
        parameters={
            "inference": sum(p.numel() for p in method.network.parameters()),
            "training_only": method.training_only_parameters(),
        },
        exemplars=method.exemplars_per_class * len(benchmark.class_names),
        weights="none",
        warnings=list(benchmark.warnings),
        note=config.note,
        config_hash=config.hash,
        command=where.command,
        versions=versions(),
        device=describe(where.device),
        split_checksum=benchmark.split_checksum,
        class_names=list(benchmark.class_names),
        classes_per_session=[len(session.classes) for session in benchmark.sessions],
        trials=trials,
    )
    kept = {"labels": benchmark.test_labels.to(torch.int32), "predictions": predictions.to(torch.int32)}

    def write() -> None:
        save_tensors(where.folder / "predictions.safetensors", kept, {"benchmark": benchmark.name})
        save_model(method, config, result, where.folder / "model")
        write_curve([result], where.folder / "curve.png")
        write_report([result], where.folder / "report.html")
        if not resumed:  # else only part of the time was spent in this process
            engine.seconds["total"] = {"seconds": round(time.perf_counter() - started, 3), "cached": False}
        write_result(result, where.folder / "result.json")  # last: its presence says that the run is complete

    distributed.broadcast(write)
    return result


def write_config(config: Config, path: Path) -> None:
    if not path.exists():
        write_atomically(path, to_toml(config).encode())


def summarise_run(benchmark: Benchmark, predictions: Tensor) -> Summary:
    sizes = [len(session.classes) for session in benchmark.sessions]
    return summarise(benchmark.test_labels.cpu().numpy(), predictions.numpy(), sizes)


def versions() -> dict[str, str]:
    known = {name: version(name) for name in ("torch", "torchvision", "numpy")}
    return {"fscil": fscil.__version__, "python": platform.python_version(), **known}


def describe(device: torch.device) -> str:
    one = torch.cuda.get_device_name() if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    return one if distributed.world_size() == 1 else f"{distributed.world_size()} x {one}"


def session_checksum(benchmark: Benchmark) -> str:
    """What the base session is made of, to the pixel or the file: the cache of encoders must not mix two of them up."""
    base = benchmark.sessions[0]
    return digest(contents(base.images), base.labels)


def data_facts(benchmark: Benchmark) -> dict[str, str]:
    """What all processes must have alike. Each looks at the images that it has.

    What a dataset says of itself, its data_checksum, may be no more than a recipe, or name the files' time of change.
    """
    facts = {"split": benchmark.split_checksum}
    images = {f"session {i}": (session.images, session.labels) for i, session in enumerate(benchmark.sessions)}
    images["pool of later classes"] = benchmark.pool.images, benchmark.pool.labels
    images["test set"] = benchmark.test_images, benchmark.test_labels
    for name, (its_images, labels) in images.items():
        if isinstance(its_images, StreamedImages):
            facts["decoding"] = its_images.source.recipe
        facts[name] = digest(contents_of_copies(its_images), labels)[:16]
    return facts


def digest(images: bytes | memoryview, labels: Tensor) -> str:
    found = hashlib.sha256(images)
    found.update(labels.cpu().contiguous().numpy().data)
    return found.hexdigest()
