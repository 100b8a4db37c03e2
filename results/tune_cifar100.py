"""Chooses the values of the preset `limit` on CIFAR100, on an inner benchmark made of base classes alone.

python results/tune_cifar100.py OUT [--seeds 1 2] [--set key=value ...]

Every row is `fscil run limit cifar100 validation=classes KEY=VALUE ...`: 40 base classes, four sessions of
5-way 5-shot, tested on held-out training images. No test image is ever read into a decision.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from fscil import runs
from fscil.config import resolve

GRID = """

batch=128 lr=0.1
batch=512 lr=0.4 epochs=400
base_margin=0.6
base_margin=0.8
base_margin=1.2
power=0.7
whiten=0.3
whiten=2
encoder_lr=2e-4 dropout=0.5
dropout=0.5
calibrator_lr=5e-3
fake_classes=base
fake_way=5
rows=blend
"""

KEYS = ("last", "average", "base", "new", "harmonic_mean")


def column(values: list[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in values) + f" ({statistics.fmean(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--set", nargs="*", default=[], help="settings of all rows")
    parser.add_argument("--rows", type=Path, help="a text file with one row's settings per line, in place of GRID")
    parser.add_argument("--benchmark", default="cifar100")
    parser.add_argument("--device")
    args = parser.parse_args()
    grid = (args.rows.read_text() if args.rows else GRID[1:]).splitlines()
    where = runs.RunEnvironment(runs.choose_device(args.device), args.out)
    table = ["| settings | last | average | base | new | HM | seconds |", "|---|---|---|---|---|---|---|"]
    for row in grid:
        results = []
        for seed in args.seeds:
            config = resolve("limit", args.benchmark, ["validation=classes", *args.set, *row.split()], seed)
            folder = args.out / f"{row.replace(' ', '_').replace('=', '-') or 'default'}-seed{seed}"
            results.append(runs.finish(config, replace(where, folder=folder), Console(stderr=True, quiet=True)))
        columns = [column([getattr(r, key) for r in results]) for key in KEYS]
        seconds = statistics.fmean(r.seconds["meta-train"]["seconds"] for r in results)
        table.append(f"| {row or 'preset'} | {' | '.join(columns)} | {seconds:.0f} |")
        print(table[-1], flush=True)
        (args.out / "tuning.md").write_text("\n".join(table) + "\n")
        (args.out / "tuning.json").write_text(json.dumps({"set": args.set, "rows": table}))


if __name__ == "__main__":
    main()
