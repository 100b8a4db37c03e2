"""Kills with -9, at random moments and inside writes, of every method: the result is always that of a quiet run."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from attack import Attempt, fscil
from interrupted_runs import RunFolder

pytestmark = pytest.mark.slow

SHORT = ("epochs=3", "trials=2", "--checkpoint-every", "0")
META = ("meta_steps=8", "meta_batch_steps=2", "fake_shot=2", "fake_queries=1")
RUNS = {
    "class means": ("decoupled-cosine", "digits", *SHORT),
    "class means, whitened": ("decoupled-cosine-plus", "digits", *SHORT),
    "limit": ("limit", "digits", "check=false", *META, *SHORT),
    "limit, encoder fixed": ("limit-plus", "digits", "check=false", "calibrator=transformer", *META, *SHORT),
    "limit, checked": ("limit-plus", "digits", *META, *SHORT),
    "finetune": ("finetune", "digits", "session_epochs=2", *SHORT),
}
QuietRun = tuple[str, Path, float]  # its name, its folder and its seconds
RANDOM_KILLS, KILLS_IN_WRITES = 6, 5  # of every run


@pytest.fixture(scope="module", params=list(RUNS))
def quiet_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> QuietRun:
    folder = tmp_path_factory.mktemp("quiet")
    started = time.perf_counter()
    done = fscil("run", *RUNS[request.param], "--out", "run", folder=folder)
    assert done.code == 0, done.err
    return request.param, folder / "run", time.perf_counter() - started


def command(name: str, folder: Path) -> tuple[str, ...]:
    """Resume the run if it has begun; otherwise start it."""
    if (folder / "run" / "config.toml").exists():
        return ("run", "--resume", "run", "--checkpoint-every", "0")
    return ("run", *RUNS[name], "--out", "run")


def test_killed_at_random_moments(quiet_run: QuietRun, tmp_path: Path) -> None:
    name, whole, seconds = quiet_run
    drawn, kills = random.Random(name), 0
    folder = tmp_path / "0"
    folder.mkdir()
    for number in range(10 * RANDOM_KILLS):
        if kills == RANDOM_KILLS:
            break
        # resumed processes have less and less to do, so that moments are drawn from a shorter time
        kills += Attempt(command(name, folder), folder).kill_after(drawn.uniform(0, seconds / 2))
        if (folder / "run" / "result.json").exists():
            finish_and_compare(name, folder, whole)
            folder = tmp_path / str(number + 1)
            folder.mkdir()
    assert kills == RANDOM_KILLS
    finish_and_compare(name, folder, whole)


def test_killed_inside_writes(quiet_run: QuietRun, tmp_path: Path) -> None:
    name, whole, _ = quiet_run
    drawn = random.Random(name)
    for _ in range(KILLS_IN_WRITES):
        attempt = Attempt(command(name, tmp_path), tmp_path, die_in_write=drawn.randrange(4)).wait()
        assert attempt.code == -signal.SIGKILL, attempt.err
        assert list(tmp_path.rglob(".*.part"))
    finish_and_compare(name, tmp_path, whole)


def finish_and_compare(name: str, folder: Path, whole: Path) -> None:
    done = fscil(*command(name, folder), folder=folder)
    assert done.code == 0, done.err
    RunFolder(folder / "run").assert_equals(RunFolder(whole))
    assert not (folder / "run" / ".lock").exists()
