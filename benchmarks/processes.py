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
from fscil import distributed

# GPUs if there are two, else the cores of the CPU
USED = torch.device("cuda" if torch.cuda.device_count() > 1 else "cpu")
IMAGES, BATCH = (20_480, 512) if USED.type == "cuda" else (1024, 256)


def images_per_second(count: int) -> float:
    """Measured in a separate job with `count` processes, started by torchrun."""
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
    one, two = images_per_second(1), images_per_second(2)
    measured = {"1 process, images/s": one, "2 processes, images/s": two}
    what = "GPU" if USED.type == "cuda" else "core"
    yield Figure(f"two processes over one, a {what} each", two / one, "times the speed", measured)


def main() -> None:
    distributed.initialise(least=1)
    if USED.type == "cuda":
        distributed.select_gpu()
    rate = IMAGES / epoch(IMAGES, BATCH, USED)
    if distributed.is_rank_zero():
        print(rate)
    distributed.shut_down()


if __name__ == "__main__":
    main()
