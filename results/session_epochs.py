"""What choosing the epoch of every session by test accuracy, as TOPIC's code does, is worth to the older methods.

python results/session_epochs.py OUT.json --methods finetune icarl topic --seeds 1 2 3

Runs each method on CIFAR100 twice, from the encoder embedded in the package: as it is, so that the last epoch of a
session counts, and with TOPIC's rule. By that rule a session ends with the first epoch that recognises new classes
better than old ones, or with a later one that improves both; if there is none, with the last. It sees a tenth of the
test images. OUT.json has the accuracy after every session.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import fscil
from fscil import methods, runs
from fscil.benchmark import Benchmark
from fscil.config import resolve
from fscil.engine import Engine
from fscil.errors import UserError
from fscil.files import write_atomically
from fscil.methods import Context, replay
from fscil.methods.replay import SessionMethod
from fscil.methods.training import Batches, train
from fscil.protocol import run_sessions

EMBEDDED = Path(fscil.__file__).parent / "learner" / "embedded" / "resnet20-cifar100.safetensors"
HEAD_ALONE = ["recipe=none", f"weights={EMBEDDED}", "lr=0", "head_lr=0.1", "epochs=2"]  # that encoder is trained
EVERY = 10  # test images


class Chooser:
    """TOPIC's rule in one session: remembers the model of the epoch that the session will end with."""

    def __init__(self, method: SessionMethod, benchmark: Benchmark) -> None:
        classes = len(method.model.rows)
        asked = torch.nonzero(benchmark.test_labels < classes).flatten()[::EVERY]
        self.method, self.images, self.labels = method, benchmark.test_images[asked], benchmark.test_labels[asked]
        self.old_classes = max(seen for i in range(len(benchmark.sessions)) if (seen := benchmark.seen(i)) < classes)
        self.best: tuple[float, float] | None = None  # accuracy on old and on new classes
        self.kept: dict[str, torch.Tensor] = {}

    def look(self, _: int) -> None:
        model = self.method.model
        training = {module: module.training for module in model.modules()}
        right = self.method.logits(self.images).argmax(1) == self.labels
        for module, mode in training.items():
            module.training = mode
        is_old = self.labels < self.old_classes
        old, new = (float(right[which].float().mean()) for which in (is_old, ~is_old))
        if new > old if self.best is None else old > self.best[0] and new > self.best[1]:
            self.best, self.kept = (old, new), {key: each.clone() for key, each in model.state_dict().items()}


@contextmanager
def epochs_chosen_by_test_accuracy(method: SessionMethod, benchmark: Benchmark) -> Iterator[None]:
    def one_epoch_at_a_time(*parts: Any, **options: Any) -> Batches:
        return Batches(*parts, **{**options, "merge": False})

    def train_and_choose(engine: Engine, *parts: Any, **options: Any) -> None:
        chooser = Chooser(method, benchmark)
        train(engine, *parts, **options, after=chooser.look)
        if chooser.best is not None:
            method.model.load_state_dict(chooser.kept)

    replay.train, replay.Batches = train_and_choose, one_epoch_at_a_time  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        replay.train, replay.Batches = train, Batches  # type: ignore[misc]


def accuracies(name: str, benchmark_name: str, seed: int, settings: Sequence[str], root: Path | None) -> dict[str, Any]:
    """After every session: with the last epoch of each, and with the chosen one."""
    config = resolve(name, benchmark_name, settings, seed)
    benchmark = runs.load_benchmark(config, root)
    found = {}
    for which in ("last", "chosen"):
        engine = Engine(seed=seed, console=Console(stderr=True))
        method = methods.get(config.method)(config.method_settings(), Context(engine, benchmark.mean, benchmark.std))
        if not isinstance(method, SessionMethod):
            raise UserError(f"{name} does not train in few-shot sessions; name a method that does, such as icarl")
        method.learn_base(benchmark.sessions[0])
        if which == "last":
            answers = run_sessions(method, benchmark, lambda *_: None)
        else:
            with epochs_chosen_by_test_accuracy(method, benchmark):
                answers = run_sessions(method, benchmark, lambda *_: None)
        labels = benchmark.test_labels
        right = answers.predictions == labels
        found[which] = [
            round(100 * float(right[i, labels < benchmark.seen(i)].float().mean()), 2)
            for i in range(len(benchmark.sessions))
        ]
    return found


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a .json file")
    parser.add_argument("--methods", nargs="+", default=["finetune", "icarl", "topic"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--set", nargs="+", default=HEAD_ALONE, metavar="KEY=VALUE", help="settings of all runs")
    parser.add_argument("--benchmark", default="cifar100")
    parser.add_argument("--root", type=Path, help="folder of datasets; default: FSCIL_DATA")
    args = parser.parse_args(words)
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for name in args.methods:
        for seed in args.seeds:
            own = accuracies(name, args.benchmark, seed, args.set, args.root)
            found.setdefault(name, {})[seed] = own
            print(name, seed, *(f"\n  {which:6} {its}" for which, its in own.items()))
            write_atomically(args.out, json.dumps({"settings": args.set, "accuracy": found}, indent=1).encode())


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
