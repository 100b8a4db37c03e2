"""Processes that get in each other's way: whatever happens, no folder ever mixes two runs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from attack import Attempt, fscil
from interrupted_runs import RunFolder

from cli_process import assert_one_clear_line
from fscil.config import read_config

pytestmark = pytest.mark.slow

SHORT = ("digits", "epochs=2", "--checkpoint-every", "0")
MEANS = ("run", "decoupled-cosine", *SHORT)
OTHER_SEED = (*MEANS, "--seed", "2")
TUNED = ("run", "finetune", *SHORT, "session_epochs=1")
COMPARE = ("compare", "digits", "epochs=2", "--methods", "decoupled-cosine", "--seeds", "1")
RESUME = ("run", "--resume", "o")


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], RunFolder]:
    """quiet(method, seed): the same run without any company."""
    kept: dict[tuple[str, int], RunFolder] = {}

    def run(method: str, seed: int) -> RunFolder:
        if (method, seed) not in kept:
            folder = tmp_path_factory.mktemp("quiet")
            start = TUNED if method == "finetune" else MEANS
            done = fscil(*start, "--seed", str(seed), "--out", "o", folder=folder)
            assert done.code == 0, done.err
            kept[method, seed] = RunFolder(folder / "o")
        return kept[method, seed]

    return run


def interrupted(folder: Path, *start: str) -> None:
    """A run in `o` that was killed in its second write of a checkpoint."""
    assert Attempt((*start, "--out", "o"), folder, die_in_write=2).wait().code == -9
    assert (folder / "o" / "config.toml").exists()


@dataclass(frozen=True)
class Scenario:
    name: str
    commands: Sequence[Sequence[str]]  # all started at once
    before: Sequence[str] = ()  # a run in `o` that is interrupted first
    cache: bool = False  # all share a cache
    finished: int | None = None  # how many must succeed; None: at least one
    killed: Sequence[int] = field(default_factory=tuple)  # commands that are killed after a moment
    then: Sequence[str] = ()  # run when all are over; it must succeed


SAME = ("--out", "o")
SCENARIOS = [
    Scenario("two starts, other seeds", [(*MEANS, *SAME), (*OTHER_SEED, *SAME)], finished=1),
    Scenario("two starts, same run", [(*MEANS, *SAME), (*MEANS, *SAME)], finished=1),
    Scenario("two starts, other methods", [(*MEANS, *SAME), (*TUNED, *SAME)], finished=1),
    Scenario("five starts", [(*MEANS, "--seed", str(seed), *SAME) for seed in range(1, 6)], finished=1),
    Scenario("five starts of one run", [(*MEANS, *SAME)] * 5, finished=1),
    Scenario("two starts without a folder", [MEANS, MEANS], finished=2),
    Scenario("four starts without a folder, other seeds", [MEANS, OTHER_SEED, MEANS, OTHER_SEED], finished=4),
    Scenario("two resume one run", [RESUME, RESUME], before=MEANS),
    Scenario("four resume one run", [RESUME] * 4, before=MEANS),
    Scenario("resume and start", [RESUME, (*OTHER_SEED, *SAME)], before=MEANS, finished=1),
    Scenario("two resume a finetuning", [RESUME, RESUME], before=TUNED),
    Scenario("two comparisons", [(*COMPARE, *SAME)] * 2, then=(*COMPARE, *SAME)),
    Scenario("three comparisons", [(*COMPARE, *SAME)] * 3, then=(*COMPARE, *SAME)),
    Scenario(
        "comparisons of other seeds",
        [(*COMPARE, *SAME), (*COMPARE, "--first-seed", "2", *SAME)],
        finished=2,
        then=(*COMPARE[:-1], "2", *SAME),
    ),
    Scenario("shared cache, same run", [MEANS, MEANS, MEANS], cache=True, finished=3),
    Scenario("shared cache, other seeds", [MEANS, OTHER_SEED, MEANS, OTHER_SEED], cache=True, finished=4),
    Scenario("shared cache, its trainer is killed", [MEANS, MEANS, MEANS], cache=True, killed=(0,), finished=2),
    Scenario("the owner is killed", [(*MEANS, *SAME), (*OTHER_SEED, *SAME)], killed=(0,), finished=None),
    Scenario("a resumer is killed", [RESUME, RESUME], before=MEANS, killed=(0,), then=RESUME),
    Scenario("all are killed", [RESUME] * 3, before=TUNED, killed=(0, 1, 2), then=RESUME),
    Scenario("reported while it runs", [(*MEANS, *SAME), ("report", "o")], finished=None),
    Scenario("read while it is resumed", [RESUME, RESUME, ("report", "o")], before=MEANS, finished=None),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.name for scenario in SCENARIOS])
def test_no_mixture(scenario: Scenario, tmp_path: Path, quiet: Callable[[str, int], RunFolder]) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {"FSCIL_CACHE": str(tmp_path / "cache")} if scenario.cache else {}
    if scenario.before:
        interrupted(folder, *scenario.before)
    attempts = [Attempt(command, folder, environment) for command in scenario.commands]
    for number in scenario.killed:
        attempts[number].kill_after(0.5)
    ended = [each.wait() for number, each in enumerate(attempts) if number not in scenario.killed]
    for each in ended:
        if each.code:
            assert each.code == 2, each.err
            assert_one_clear_line(each.err.splitlines(keepends=True)[-1])
            assert "Traceback" not in each.err
    if scenario.finished is not None:
        assert sum(each.code == 0 for each in ended) == scenario.finished, [each.err for each in ended]
    if scenario.then:
        done = fscil(*scenario.then, folder=folder)
        assert done.code == 0, done.err
    found = list(results_in(folder))
    assert found or scenario.finished is None
    for method, seed, run in found:
        run.assert_equals(quiet(method, seed), cached=scenario.cache)


def results_in(folder: Path) -> Iterator[tuple[str, int, RunFolder]]:
    """Every finished run; its configuration, its result and its model are of one run."""
    for path in folder.rglob("result.json"):
        result, config = json.loads(path.read_text()), read_config(path.with_name("config.toml"))
        model = json.loads((path.parent / "model" / "config.json").read_text())
        settings = tomllib.loads(path.with_name("config.toml").read_text())["settings"]
        assert (result["config_hash"], result["seed"], result["method"]) == (config.hash, config.seed, config.method)
        assert (model["run"]["seed"], model["run"]["settings"]) == (config.seed, settings)
        yield config.method, config.seed, RunFolder(path.parent)
