"""A comparison of several runs at once is interrupted or killed: its processes end, and the same command goes on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from interrupted_runs import RunFolder, signal_when

from cli_process import fscil_process, popen
from fscil.run_lock import InUseError, RunLock

pytestmark = pytest.mark.slow

COMPARE = (
    "compare", "digits", "--methods", "teen,fact", "epochs=2", "--seeds", "1", "--jobs", "2", "--checkpoint-every", "0",
)  # fmt: skip
RUNS = ("digits-teen-seed1", "digits-fact-seed1")


def test_the_same_command_goes_on(tmp_path: Path) -> None:
    """Only the command itself gets the signal; in a terminal its processes would get one, too."""
    code, _, err = fscil_process(*COMPARE, "--out", "whole", cwd=tmp_path)
    assert code == 0, err
    process = popen(*COMPARE, "--out", "parts", cwd=tmp_path)
    runs = [RunFolder(tmp_path / "parts" / name) for name in RUNS]
    signal_when(process, lambda: all(run.count("pretrain") > 0 for run in runs), signal.SIGINT)
    assert process.returncode == 130
    assert not any((run.path / "result.json").exists() for run in runs)
    code, _, err = fscil_process(*COMPARE, "--out", "parts", cwd=tmp_path)  # nobody holds their locks
    assert code == 0, err
    assert "2 runs: 2 to resume" in err
    for run, name in zip(runs, RUNS, strict=True):
        run.assert_equals(RunFolder(tmp_path / "whole" / name))


def test_runs_end_when_their_command_was_killed(tmp_path: Path) -> None:
    """It had no time to end them; their locks die with them."""
    process = popen(*COMPARE, "--out", "parts", cwd=tmp_path)
    runs = [RunFolder(tmp_path / "parts" / name) for name in RUNS]
    signal_when(process, lambda: all(run.count("pretrain") > 0 for run in runs), signal.SIGKILL)
    for run in runs:
        lock = RunLock(run.path)
        while True:  # pytest's timeout ends it
            try:
                lock.take()
                break
            except InUseError:
                continue
        lock.release()
    assert not any((run.path / "result.json").exists() for run in runs)
    code, _, err = fscil_process(*COMPARE, "--out", "parts", cwd=tmp_path)
    assert code == 0, err
    assert "2 runs: 2 to resume" in err
