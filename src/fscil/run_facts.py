"""What is recorded about a run besides its answers: numbers, versions, device, and the facts that all ranks share."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

import torch

import fscil
from fscil import distributed, margins, methods
from fscil.answers import Answers
from fscil.benchmark import Benchmark, digest
from fscil.config import Config
from fscil.encoders.timm_models import PREFIX as TIMM
from fscil.images import StreamedImages, contents_of_copies
from fscil.metrics import summarise
from fscil.results import Result, Trial


def summarise_run(
    config: Config,
    folder: Path,
    device: torch.device,
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
        for trial in sorted(found)  # a resumed run has them in another order
        if trial > 0
    ]
    return Result(
        folder=str(folder),
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
        versions=versions(method.model.spec.encoder),
        device=describe(device),
        split_checksum=benchmark.split_checksum,
        class_names=list(benchmark.class_names),
        classes_per_session=sizes,
        trials=trials,
    )


def versions(encoder: str = "") -> dict[str, str]:
    packages = ["torch", "torchvision", "numpy", *(["timm"] if encoder.startswith(TIMM) else [])]
    known = {name: version(name) for name in packages}
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
