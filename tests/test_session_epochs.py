"""The script that chooses the epoch of every session by test accuracy, as TOPIC's code does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fscil.benchmark import Benchmark
from results import session_epochs
from run_helpers import Start


def test_last_epochs_give_the_accuracy_of_a_run(start: Start, tiny_dataset: str, tmp_path: Path) -> None:
    settings = ["epochs=1", "lr=0.02", "session_epochs=3"]
    session_epochs.main(
        [str(tmp_path / "out.json"), "--methods", "finetune", "--benchmark", tiny_dataset, "--set", *settings]
    )
    found = json.loads((tmp_path / "out.json").read_text())["accuracy"]["finetune"]["1"]
    assert found["last"] == [round(accuracy, 2) for accuracy in start("finetune", *settings).accuracy]
    assert len(found["chosen"]) == 3
    assert found["chosen"][0] == found["last"][0]  # nothing is chosen in the base session


@pytest.mark.parametrize(
    ("epochs", "expected"),  # accuracy on old and on new classes
    [
        ([(0.9, 0.1), (0.8, 0.5)], None),  # new classes never better than old ones: the last epoch
        ([(0.9, 0.1), (0.4, 0.5), (0.3, 0.9), (0.9, 0.4)], 1),  # the first, since none improves both
        ([(0.4, 0.5), (0.5, 0.6), (0.5, 0.9), (0.6, 0.7)], 3),
    ],
)
def test_an_epoch_is_chosen_by_topics_rule(
    epochs: list[tuple[float, float]],
    expected: int | None,
    tiny_benchmark: Callable[..., Benchmark],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_epochs, "EVERY", 1)
    benchmark = tiny_benchmark(base=4, ways=(2,), shots=(2,), test_images=10)
    model: Any = torch.nn.Module()
    model.register_buffer("epoch", torch.tensor(0))
    model.rows = torch.zeros(6, 2)
    labels = benchmark.test_labels
    rank = torch.arange(len(labels)) % 10  # of an image in its class

    def logits(_: torch.Tensor) -> torch.Tensor:
        old, new = epochs[int(model.epoch)]
        right = rank < torch.where(labels < 4, round(10 * old), round(10 * new))
        return torch.nn.functional.one_hot(torch.where(right, labels, (labels + 1) % 6), 6).float()

    chooser = session_epochs.Chooser(SimpleNamespace(model=model, logits=logits), benchmark)  # type: ignore[arg-type]
    for epoch in range(len(epochs)):
        model.epoch.fill_(epoch)
        chooser.look(epoch)
    assert (int(chooser.kept["epoch"]) if chooser.best else None) == expected
