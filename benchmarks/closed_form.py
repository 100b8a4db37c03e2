"""Closed-form calibration: its speed and memory, as ratios measured in one run.

    python benchmarks/closed_form.py            a minute and a half on 2 cores
    python benchmarks/closed_form.py --large    up to 100,000 classes, some minutes

What is compared takes turns, and the best of all turns counts: on a busy machine the others tell about its neighbours.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from fscil import encoders
from fscil.calibrators import Transformer
from fscil.methods.cosine_network import cosine_logits

QUERIES = 512
SCALE = 16.0
Line = dict[str, Any]


def best_times(seconds: float, **functions: Callable[[], object]) -> dict[str, float]:
    """The shortest time of each, in seconds; they take turns, two at least, for about so long."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    end, turns = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or turns < 2:
        turns += 1
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: min(each) for name, each in times.items()}


def once(function: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and MiB of tensors that are alive at once beside those that were there before."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler talks about devices that are not there
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        start = time.perf_counter()
        function()
        seconds = time.perf_counter() - start
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    alive = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return seconds, peak / 2**20


def calibrator_rows_and_queries(C: int, d: int) -> tuple[Transformer, Tensor, Tensor]:
    """With a layer normalisation as training leaves it: gamma and delta are not constant."""
    torch.manual_seed(0)
    calibrator = Transformer(d, cosine=True, scale=SCALE).eval().requires_grad_(False)
    for parameter, mean in ((calibrator.layer_norm.weight, 1.0), (calibrator.layer_norm.bias, 0.0)):
        nn.init.normal_(parameter, mean, 0.3)
    return calibrator, torch.randn(C, d), torch.randn(QUERIES, d)


@torch.no_grad()
def head(C: int, d: int, seconds: float) -> Line:
    """Calibrated logits of 512 queries with kept class terms, over attention, a linear and a cosine head.

    Attention does as many queries at a time as suit the cache; its time and memory are counted per query.
    """
    calibrator, rows, queries = calibrator_rows_and_queries(C, d)
    some = queries[: max(1, min(QUERIES, 2**22 // (C * d)))]

    def calibrated() -> Tensor:
        return calibrator.predict(rows, queries)

    def attention() -> Tensor:
        return calibrator.attend(rows, some)

    calibrated()
    times = best_times(
        seconds,
        calibrated=calibrated,
        linear=lambda: F.linear(queries, rows),
        cosine=lambda: cosine_logits(queries, rows, SCALE),
    )
    of_attention = best_times(seconds / 2, attention=attention)["attention"] * QUERIES / len(some)
    memory, memory_of_attention = once(calibrated)[1], once(attention)[1] * QUERIES / len(some)
    return {
        "C": C,
        "d": d,
        "calibrated ms": 1000 * times["calibrated"],
        "attention / calibrated": of_attention / times["calibrated"],
        "in memory": memory_of_attention / memory,
        "calibrated / linear": times["calibrated"] / times["linear"],
        "calibrated / cosine": times["calibrated"] / times["cosine"],
    }


@torch.no_grad()
def end_to_end(images: int, C: int, seconds: float) -> Line:
    """Images to logits with a ResNet20: calibrated over uncalibrated."""
    encoder = encoders.build("resnet20", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)).eval()
    calibrator, rows, _ = calibrator_rows_and_queries(C, encoder.dim)
    batch = torch.randint(0, 256, (images, 3, 32, 32), dtype=torch.uint8)
    times = best_times(
        seconds,
        calibrated=lambda: calibrator.predict(rows, encoder.embed(batch)),
        cosine=lambda: cosine_logits(encoder.embed(batch), rows, SCALE),
    )
    return {
        "images": images,
        "C": C,
        "calibrated ms": 1000 * times["calibrated"],
        "calibrated / cosine": times["calibrated"] / times["cosine"],
    }


@torch.no_grad()
def against_classes(C: int, d: int, seconds: float) -> Line:
    """Milliseconds and MiB to build the class terms, to teach and to forget one class, to answer one or 512 queries."""
    calibrator, rows, queries = calibrator_rows_and_queries(C, d)
    one, more = queries[:1], torch.cat([rows, torch.randn(1, d)])
    built, memory = once(lambda: calibrator.predict(rows, one))
    times = best_times(
        seconds, teach=lambda: calibrator.predict(more, one), forget=lambda: calibrator.predict(rows, one)
    ) | best_times(
        seconds, answer=lambda: calibrator.predict(rows, one), answers=lambda: calibrator.predict(rows, queries)
    )
    return {
        "C": C,
        "d": d,
        "build ms": 1000 * built,
        **{f"{name} ms": 1000 * value for name, value in times.items()},
        "build MiB": memory,
        "answers MiB": once(lambda: calibrator.predict(rows, queries))[1],
    }


def run(large: bool = False, seconds: float = 2.0) -> dict[str, list[Line]]:
    """`seconds` for each comparison, and more where one of the two is slow."""
    many = (1000, 10_000, 100_000) if large else (1000, 4000, 16_000)
    return {
        "closed form": [head(C, d, seconds) for d in (64, 512) for C in (100, 200, 1000, 5000)],
        "end to end": [end_to_end(images, 100, 3 * seconds) for images in (QUERIES, 1)],
        "cost against classes": [against_classes(C, 64, seconds / 2) for C in many],
    }


def show(title: str, table: list[Line]) -> None:
    widths = [max(len(name), 8) for name in table[0]]
    print(f"\n{title}")
    for line in (list(table[0]), *(line.values() for line in table)):
        cells = (f"{cell:.{0 if cell >= 100 else 3}f}" if isinstance(cell, float) else str(cell) for cell in line)
        print("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)))


if __name__ == "__main__":
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}; {QUERIES} queries, cosine logits, float32")
    for title, table in run(large="--large" in sys.argv[1:]).items():
        show(title, table)
