"""Measure everything: `python -m benchmarks [--out FILE]` prints a table and writes a JSON file."""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import asdict
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import augmentation, closed_form, learner, processes, sampling, streaming, training
from benchmarks.figures import Figure
from fscil.run_facts import versions

PARTS = {
    "augmentation": augmentation.measure,
    "sampling": sampling.measure,
    "training": training.measure,
    "processes": processes.measure,
    "streaming": streaming.measure,
    "closed-form": closed_form.measure,
    "learner": learner.measure,
    "many-classes": closed_form.measure_many_classes,
}
LONG = {"many-classes"}  # only measured when named


def hardware() -> dict[str, str | int]:
    found: dict[str, str | int] = {"cpu": processor(), "threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def processor() -> str:
    """The processor's name; Linux keeps it in a file."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].split(":", 1)[1].strip() if names else platform.processor() or platform.machine()


def table(figures: list[Figure]) -> Table:
    made = Table("figure", "ratio", "", "measured", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    for figure in figures:
        measured = "; ".join(f"{name.replace(', ', ' ')} {value:,.4g}" for name, value in figure.measured.items())
        made.add_row(figure.name, f"{figure.ratio:.3g}", figure.meaning, measured)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    usual = [part for part in PARTS if part not in LONG]
    parser.add_argument("--only", nargs="*", choices=PARTS, default=usual, help="only these parts")
    args = parser.parse_args()
    console, started = Console(), time.perf_counter()
    figures: list[Figure] = []
    for name in args.only:
        for figure in PARTS[name]():
            console.print(f"{figure.name}: {figure.ratio:.3g} {figure.meaning}", highlight=False, soft_wrap=True)
            figures.append(figure)
        # after every part, so that nothing is lost if a later one fails
        facts = {"hardware": hardware(), "versions": versions(), "seconds": round(time.perf_counter() - started, 1)}
        args.out.write_text(json.dumps({**facts, "figures": [asdict(each) for each in figures]}, indent=1) + "\n")
    console.print(table(figures))
    console.print(f"{hardware()}, {time.perf_counter() - started:.0f} s, written to {args.out}", highlight=False)


if __name__ == "__main__":
    main()
