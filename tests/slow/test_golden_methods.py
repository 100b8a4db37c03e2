"""Methods on digits: the accuracy after the last session stays what it was.

Every run starts from one encoder, digits-encoder.safetensors, which pre-training leaves alone: it only fits the rows.
CPUs of two kinds round differently. A training from scratch makes another encoder of that, as another seed would, and
then no number can tell a mistake from a new CPU. The file holds the encoder of
`fscil run decoupled-cosine digits --seed 1`, rounded to half precision.

A number is what `fscil run NAME digits START --seed 1` gives, START being the settings below; those after a method's
name are part of NAME. Its tolerance is the standard deviation between seeds 1 to 5, but at least 1.0. Measured with
Python 3.11 and torch 2.15 on a CPU with AVX-512. With AVX2 alone, 11 of the 20 numbers are the same to the last digit;
the others differ by at most 0.9, a quarter of their tolerance.

    python tests/slow/test_golden_methods.py     # measures all of them again; half an hour on one core

They notice, for instance, `icarl` and `eeil` without distillation (27.74, 31.23), `rebalancing` without the
less-forget loss (16.45), and `topic` without the anchor loss (10.96) or with a rate of 0.1 (45.85). They do not notice
`eeil-original` without distillation (48.17) or `rebalancing-original` without the less-forget loss (72.92); there are
tests of those losses.

The settings make runs shorter; `limit` and `limit-plus` go without the check of calibration; `limit-paper` does what
`limit` does here. `joint` trains its rows alone; the encoder of `fact` learns, too, since its training is all that
`fact` is. Pre-training from scratch has a number of its own, the mean over seeds 1 to 5, with a tolerance of three
standard deviations: wide enough for an encoder of another CPU.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import pytest
import torch
from rich.console import Console

from fscil import runs
from fscil.config import resolve

pytestmark = pytest.mark.slow

ENCODER = Path(__file__).parent / "digits-encoder.safetensors"
START = [f"weights={ENCODER}", "recipe=none", "epochs=5", "batch=32", "lr=0", "head_lr=0.05", "warmup=0"]
SEEDS = range(1, 6)

GOLDEN: dict[str, tuple[float, float]] = {
    "decoupled-cosine": (70.76, 1.0),
    "decoupled-cosine-plus": (85.71, 1.0),
    "teen": (70.76, 1.0),
    "fact lr=0.01": (69.77, 1.07),
    "decoupled-deepemd": (87.71, 1.0),
    "joint": (51.50, 3.75),
    "limit check=false meta_steps=100": (50.17, 7.19),
    "limit-paper fake_way=1 meta_steps=100": (50.17, 7.19),
    "limit-plus check=false calibrator=transformer": (78.07, 2.3),
    "limit-released": (71.59, 2.19),
    "cec": (73.42, 3.14),
    "cec-paper fake_way=4 fake_queries=5 meta_steps=100": (57.81, 3.78),
    "finetune": (16.94, 3.42),
    "icarl": (45.68, 4.09),
    "eeil": (45.35, 4.51),
    "rebalancing": (53.49, 4.91),
    "topic": (57.31, 3.1),
    "icarl-original session_epochs=10": (70.43, 1.0),
    "eeil-original session_epochs=20 balanced_epochs=10": (48.84, 5.03),
    "rebalancing-original session_epochs=20": (71.76, 1.92),
}


def last_accuracy(name: str, seed: int, folder: Path) -> float:
    method, *settings = name.split()
    environment = runs.RunEnvironment(torch.device("cpu"), folder)
    return runs.start(resolve(method, "digits", [*START, *settings], seed), environment, Console(quiet=True)).last


@pytest.mark.parametrize("name", GOLDEN)
def test_last_accuracy_on_digits(name: str, tmp_path: Path) -> None:
    expected, tolerance = GOLDEN[name]
    assert last_accuracy(name, 1, tmp_path / "run") == pytest.approx(expected, abs=tolerance)


def test_last_accuracy_of_an_encoder_trained_from_scratch(tmp_path: Path) -> None:
    environment = runs.RunEnvironment(torch.device("cpu"), tmp_path / "run")
    result = runs.start(resolve("decoupled-cosine", "digits", seed=1), environment, Console(quiet=True))
    assert result.last == pytest.approx(68.41, abs=8.78)


def measure(name: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        found = [last_accuracy(name, seed, Path(folder, str(seed))) for seed in SEEDS]
    return round(found[0], 2), max(1.0, round(statistics.stdev(found), 2))


if __name__ == "__main__":
    for name in GOLDEN:
        print(f'    "{name}": {measure(name)},', flush=True)
