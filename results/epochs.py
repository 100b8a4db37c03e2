"""What choosing the epoch by test accuracy, as LIMIT's released code does, is worth to it.

python results/epochs.py OUT --seeds 81 82 83

Runs `limit-released` on CIFAR100, and tests it on all sessions after every epoch of meta-training. OUT/epochs.json has
the accuracies, [epoch][session] for every seed, and OUT the runs themselves, whose results no epoch was chosen for.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from rich.console import Console

from fscil import runs
from fscil.benchmark import Benchmark, Session
from fscil.config import resolve
from fscil.errors import UserError
from fscil.files import write_atomically
from fscil.methods.limit import Limit
from fscil.methods.prototypes import class_means

PRESET, BENCHMARK = "limit-released", "cifar100"


@torch.no_grad()
def accuracies(method: Limit, benchmark: Benchmark) -> list[float]:
    """After every session, in percent, if meta-training ended now."""
    rows, queries = method.model.rows.detach().clone(), method.embed(benchmark.test_images)
    found = []
    for i, session in enumerate(benchmark.sessions):
        if i > 0:
            rows = torch.cat([rows, class_means(method.embed(session.images), session.labels, session.classes)])
        asked = benchmark.test_labels < len(rows)
        answers = method.model.calibrator.predict(rows, queries[asked]).argmax(1)
        found.append(round(100 * float((answers == benchmark.test_labels[asked]).float().mean()), 2))
    return found


def run_and_test(
    seed: int,
    settings: Sequence[str],
    environment: runs.RunEnvironment,
    benchmark: str,
    tested: Callable[[list[float]], None],
) -> None:
    """The run; its accuracies are handed out whenever base rows have become class means: at the end of every epoch."""
    config = resolve(PRESET, benchmark, settings, seed)
    data = runs.load_benchmark(config, environment.root).to(environment.device)
    refresh = Limit.refresh

    def refresh_and_test(method: Limit, session: Session) -> None:
        refresh(method, session)
        tested(accuracies(method, data))

    Limit.refresh = refresh_and_test  # type: ignore[method-assign]
    try:
        runs.start(config, environment, Console(stderr=True, highlight=False))
    finally:
        Limit.refresh = refresh  # type: ignore[method-assign]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the runs and of epochs.json")
    parser.add_argument("--seeds", type=int, nargs="+", default=[81, 82, 83])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of all runs")
    parser.add_argument("--benchmark", default=BENCHMARK)
    parser.add_argument("--device", help="cpu or cuda; default: cuda where there is one")
    parser.add_argument("--root", type=Path, help="folder of datasets; default: FSCIL_DATA")
    args = parser.parse_args(words)
    device = runs.choose_device(args.device)
    found: dict[int, list[list[float]]] = {}
    for seed in args.seeds:
        found[seed] = []

        def note(accuracies: list[float], its: list[list[float]] = found[seed]) -> None:
            its.append(accuracies)
            write_atomically(args.out / "epochs.json", json.dumps({"accuracy": found}).encode())

        environment = runs.RunEnvironment(device, args.out / f"{PRESET}-seed{seed}", args.root)
        run_and_test(seed, args.set, environment, args.benchmark, note)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
