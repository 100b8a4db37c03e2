"""Pre-training in two processes against one, each with one core (or one GPU), the global batch the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.figures import Figure
from benchmarks.training import epoch
from fscil.engine import launch, processes

IMAGES, BATCH = (512, 64) if not torch.cuda.is_available() else (20_480, 512)


def images_per_second(count: int) -> float:
    """As a job of its own with so many processes, which torchrun starts."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    sources = os.pathsep.join(str(Path(__file__).parents[1] / part) for part in (".", "src"))
    finished = subprocess.run(
        [*command, "-m", "benchmarks.processes"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": sources},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(finished.stdout.split()[-1])


def measure() -> Iterator[Figure]:
    available = torch.cuda.device_count() if torch.cuda.is_available() else os.cpu_count() or 1
    if available < 2:
        return
    one, two = images_per_second(1), images_per_second(2)
    measured = {"1 process, images/s": one, "2 processes, images/s": two}
    yield Figure("two processes over one", two / one, "times the speed", measured)


def main() -> None:
    launch.join(least=1)
    if torch.cuda.is_available():
        launch.own_gpu()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rate = IMAGES / epoch(IMAGES, BATCH, device)
    if processes.leads():
        print(rate)
    launch.leave()


if __name__ == "__main__":
    main()
