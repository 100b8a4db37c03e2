"""Closed-form calibration against attention, a linear head and a cosine head; and its cost against the classes.

The candidates take turns, and the best turn of each counts: on a busy machine slower turns reflect other load.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.figures import Figure
from fscil import encoders
from fscil.calibrators import Cosine, Transformer

QUERIES = 512
SCALE = 16.0


def uncalibrated(rows: Tensor, queries: Tensor) -> Tensor:
    return Cosine(rows.shape[1], scale=SCALE).predict(rows, queries)


def in_turns(
    seconds: float, by: Callable[[list[float]], float] = min, **functions: Callable[[], object]
) -> dict[str, float]:
    """The shortest time of each, or what `by` makes of its times, in milliseconds; they take turns, at least two each,
    for about `seconds` in all."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    end, turns = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or turns < 2:
        turns += 1
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(1000 * (time.perf_counter() - start))
    return {name: by(each) for name, each in times.items()}


def peak(function: Callable[[], object]) -> float:
    """Peak MiB of live tensors, without those that existed before."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler warns about missing devices
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    alive = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    return most / 2**20


def calibrator_rows_and_queries(C: int, d: int) -> tuple[Transformer, Tensor, Tensor]:
    """With a layer normalisation as training leaves it: gamma and delta are not constant."""
    torch.manual_seed(0)
    calibrator = Transformer(d, cosine=True, scale=SCALE).eval().requires_grad_(False)
    for parameter, mean in ((calibrator.layer_norm.weight, 1.0), (calibrator.layer_norm.bias, 0.0)):
        nn.init.normal_(parameter, mean, 0.3)
    return calibrator, torch.randn(C, d), torch.randn(QUERIES, d)


@torch.no_grad()
def head(C: int, d: int, seconds: float = 1.5) -> Iterator[Figure]:
    """Logits of 512 queries with kept class terms.

    Attention does as many queries at a time as suit the cache; its time and memory are counted per query.
    """
    calibrator, rows, queries = calibrator_rows_and_queries(C, d)
    some = queries[: max(1, min(QUERIES, 2**22 // (C * d)))]

    def calibrated() -> Tensor:
        return calibrator.predict(rows, queries)

    def attention() -> Tensor:
        return calibrator.attend(rows, some)

    calibrated()
    ms = in_turns(
        seconds,
        calibrated=calibrated,
        linear=lambda: F.linear(queries, rows),
        cosine=lambda: uncalibrated(rows, queries),
    )
    share = QUERIES / len(some)
    ms["attention"] = share * in_turns(seconds / 2, attention=attention)["attention"]
    mib = {"calibrated": peak(calibrated), "attention": share * peak(attention)}
    at = f"C = {C}, d = {d}"
    for other, meaning, ratio in (
        ("attention", "times faster", ms["attention"] / ms["calibrated"]),
        ("linear", "times the time", ms["calibrated"] / ms["linear"]),
        ("cosine", "times the time", ms["calibrated"] / ms["cosine"]),
    ):
        name = "closed form over attention" if other == "attention" else f"calibrated head over a {other} one"
        measured = {"calibrated, ms": ms["calibrated"], f"{other}, ms": ms[other]}
        yield Figure(f"{name}, {at}", ratio, meaning, measured)
    measured = {f"{name}, MiB": value for name, value in mib.items()}
    yield Figure(f"memory of attention, {at}", mib["attention"] / mib["calibrated"], "times as much", measured)


@torch.no_grad()
def end_to_end(images: int, C: int, seconds: float = 6.0) -> Figure:
    """Images to logits with a ResNet20."""
    encoder = encoders.build("resnet20", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)).eval()
    calibrator, rows, _ = calibrator_rows_and_queries(C, encoder.dim)
    batch = torch.randint(0, 256, (images, 3, 32, 32), dtype=torch.uint8)
    ms = in_turns(
        seconds,
        calibrated=lambda: calibrator.predict(rows, encoder.embed(batch)),
        cosine=lambda: uncalibrated(rows, encoder.embed(batch)),
    )
    measured = {f"{name}, ms": value for name, value in ms.items()}
    name = f"calibrated prediction over an uncalibrated one, {images} image{'s' * (images > 1)}, C = {C}"
    return Figure(name, ms["calibrated"] / ms["cosine"], "times the time", measured)


@torch.no_grad()
def costs(C: int, d: int, seconds: float = 1.0) -> dict[str, float]:
    """Milliseconds to build the class terms, to teach and to forget a class, to answer one and 512 queries; MiB."""
    calibrator, rows, queries = calibrator_rows_and_queries(C, d)
    one, more = queries[:1], torch.cat([rows, torch.randn(1, d)])
    start = time.perf_counter()
    calibrator.predict(rows, one)
    built = 1000 * (time.perf_counter() - start)
    changes = in_turns(
        seconds, teach=lambda: calibrator.predict(more, one), forget=lambda: calibrator.predict(rows, one)
    )
    answers = in_turns(
        seconds, one=lambda: calibrator.predict(rows, one), many=lambda: calibrator.predict(rows, queries)
    )
    return {
        "build, ms": built,
        "teach a class, ms": changes["teach"],
        "forget a class, ms": changes["forget"],
        "1 query, ms": answers["one"],
        f"{QUERIES} queries, ms": answers["many"],
        f"{QUERIES} queries, MiB": peak(lambda: calibrator.predict(rows, queries)),
    }


def against_classes(few: int, many: int, d: int = 64) -> Iterator[Figure]:
    small, large = costs(few, d), costs(many, d)
    for what in small:
        measured = {f"C = {few}: {what}": small[what], f"C = {many}: {what}": large[what]}
        name = f"{what.split(',')[0]} with {many // few} times the classes, d = {d}"
        yield Figure(name, large[what] / small[what], f"times the {what.split()[-1]}", measured)


def measure() -> Iterator[Figure]:
    for d in (64, 512):
        for C in (100, 200, 1000, 5000):
            yield from head(C, d)
    for images in (QUERIES, 1):
        yield end_to_end(images, 100)
    yield from against_classes(2000, 16_000)


def measure_many_classes() -> Iterator[Figure]:
    """100,000 classes, some minutes."""
    yield from against_classes(10_000, 100_000)
