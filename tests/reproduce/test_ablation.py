from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from fscil import datasets, paper, reproduce, runs
from fscil.benchmark import Benchmark
from fscil.config import resolve
from fscil.datasets import Dataset
from fscil.errors import UserError
from fscil.reproduce import ablation

Reproduce = Callable[..., str]


@pytest.fixture
def run_ablation(
    monkeypatch: pytest.MonkeyPatch, tiny_dataset: str, tiny_benchmark: Callable[..., Benchmark], tmp_path: Path
) -> Reproduce:
    """The real table, on a "cifar100" of nine tiny sessions."""
    monkeypatch.setenv("FSCIL_CACHE", str(tmp_path / "cache"))
    tiny = datasets.get(tiny_dataset)

    def load(options: Any, root: Path | None) -> Benchmark:
        return tiny_benchmark(base=5, ways=(1,) * 8, shots=(2,) * 8)

    stand_in = Dataset("cifar100", "", tiny.options, load, tiny.defaults, tiny.prepare, tiny.verify)
    monkeypatch.setitem(datasets.BUILT_IN, "cifar100", stand_in)
    environment = runs.RunEnvironment(torch.device("cpu"), tmp_path / "out")

    def go(*overrides: str, seeds: int = 1) -> str:
        out = Console(file=StringIO(), width=200)
        small = ("fake_way=1", "fake_shot=2", *overrides)
        reproduce.reproduce("ablation", range(1, seeds + 1), small, environment, out, Console(quiet=True))
        return out.file.getvalue()  # type: ignore[attr-defined]

    return go


def facts(folder: Path, row: str, seed: int = 1) -> dict[str, Any]:
    return json.loads((folder / "out" / f"ablation-{row}-seed{seed}" / "result.json").read_text())


def settings_of(folder: Path, row: str) -> dict[str, Any]:
    return json.loads((folder / "out" / f"ablation-{row}-seed1" / "model" / "config.json").read_text())["run"][
        "settings"
    ]


@pytest.mark.slow
def test_five_rows_beside_the_papers(run_ablation: Reproduce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = run_ablation(seeds=2)
    table = [line.replace("│", " ").split() for line in printed.splitlines()]
    assert list(paper.ablation()) == ["finetune", "prototype", "calibration", "meta-1", "meta-c"]
    for row, published in paper.ablation().items():
        (ours,) = [line for line in table if line[:1] == [f"{row},"]]
        mean = [sum(facts(tmp_path, row, seed)["accuracy"][i] for seed in (1, 2)) / 2 for i in range(9)]
        assert ours[1:12] == ["2", "seeds", *(f"{value:.2f}" for value in mean)]
        theirs = table[table.index(ours) + 1]
        assert theirs == ["paper", *(f"{value:.2f}" for value in published), f"{published[0] - published[-1]:.2f}"]
    steps = printed[printed.index("Against the row above") :]
    for row, above in {"calibration": "prototype", "meta-1": "calibration"}.items():
        (line,) = [line.split() for line in steps.splitlines() if line.split()[:1] == [row]]
        for key, place in {"last": 7, "area": 11}.items():
            gaps = [facts(tmp_path, row, seed)[key] - facts(tmp_path, above, seed)[key] for seed in (1, 2)]
            assert line[place] == f"{sum(gaps) / 2:+.2f}"
        assert line[10] == f"{paper.ablation()[row][-1] - paper.ablation()[above][-1]:+.2f}"
    monkeypatch.setattr(runs, "execute", lambda *_: pytest.fail("it ran again"))
    assert run_ablation(seeds=2) == printed


def test_rows_of_limit_change_one_setting_and_all_pre_train_alike() -> None:
    configs = {row.name: resolve(row.preset, "cifar100", row.settings) for row in ablation.rows_with([])}
    limit = resolve("limit", "cifar100")
    changed = {
        name: {key: value for key, value in config.settings.items() if value != limit.settings[key]}
        for name, config in configs.items()
        if config.method == "limit"
    }
    assert changed == {"calibration": {"tasks": "plain"}, "meta-1": {"fake_phases": 1}, "meta-c": {}}
    for key in ("recipe", "epochs", "batch", "lr"):
        assert {config.settings[key] for config in configs.values()} == {limit.settings[key]}
    assert {config.run["base_margin"] for config in configs.values()} == {0.0}
    quick = ablation.rows_with(["recipe=quick", "epochs=3"])
    assert {resolve(row.preset, "cifar100", row.settings).settings["recipe"] for row in quick} == {"quick"}


@pytest.mark.slow
def test_rows_differ_in_what_they_are_named_for_and_share_the_rest(run_ablation: Reproduce, tmp_path: Path) -> None:
    run_ablation("fake_phases=2", "meta_steps=2", "trials=1", "trial=2")
    assert settings_of(tmp_path, "calibration")["tasks"] == "plain"
    assert settings_of(tmp_path, "meta-1")["fake_phases"] == 1  # whatever else is typed
    assert settings_of(tmp_path, "meta-c")["fake_phases"] == 2
    assert settings_of(tmp_path, "meta-c")["meta_steps"] == 2
    assert "meta_steps" not in settings_of(tmp_path, "finetune")
    cached = {row: facts(tmp_path, row)["seconds"]["pretrain"]["cached"] for row in paper.ablation()}
    assert cached == {"finetune": False, "prototype": True, "calibration": True, "meta-1": True, "meta-c": True}
    assert all(facts(tmp_path, row)["trial"] == 2 for row in paper.ablation())
    assert all(len(facts(tmp_path, row)["trials"]) == 1 for row in paper.ablation())


def test_a_setting_that_no_row_knows_is_refused(run_ablation: Reproduce, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'epochs'"):
        run_ablation("epoch=1")
    assert not (tmp_path / "out").exists()


def test_unknown_tables_are_named(run_ablation: Reproduce) -> None:
    with pytest.raises(UserError, match="unknown table or figure 'ablatoin': did you mean 'ablation'"):
        reproduce.reproduce(
            "ablatoin", [1], [], runs.RunEnvironment(torch.device("cpu"), Path("x")), Console(), Console()
        )
    assert "ablation" in reproduce.names()


def test_settings_that_the_ablation_fixes_are_refused(tmp_path: Path) -> None:
    environment = runs.RunEnvironment(torch.device("cpu"), tmp_path)
    with pytest.raises(UserError, match="itself sets tasks"):
        ablation.reproduce([1], ["tasks=fake"], environment, Console(quiet=True), Console(quiet=True))
    assert not list(tmp_path.iterdir())
