"""A method of another package, with exemplars and a teacher, killed in every part of its run and resumed: same bits."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from interrupted_runs import RunFolder, signal_when

import example_package as example

pytestmark = pytest.mark.slow


def test_kills_leave_no_trace_in_a_method_with_memory_and_teacher(tmp_path: Path) -> None:
    python = example.install(example.write(tmp_path / "package"), tmp_path / "environment")
    words = ["epochs=4" if word.startswith("epochs=") else word for word in example.command()]
    start = [*words, "session_epochs=6", "trials=1", "--checkpoint-every", "0"]

    def popen(*arguments: str) -> subprocess.Popen[str]:
        command = [str(python), "-m", "fscil", *arguments]
        return subprocess.Popen(
            command, cwd=tmp_path, env=example.settings(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    whole = popen(*start, "--out", "whole")
    _, err = whole.communicate()
    assert whole.returncode == 0, err
    run = RunFolder(tmp_path / "run")
    arguments: list[str] = [*start, "--out", "run"]
    trial, final = [("trial-1-rehearsal-6", 3), ("trial-1-rehearsal-8", 2)], [("rehearsal-6", 4), ("rehearsal-8", 1)]
    for stage, lines in [("pretrain", 2), *trial, *final]:
        process = popen(*arguments)
        signal_when(process, lambda stage=stage, lines=lines: run.count(stage) >= lines, signal.SIGKILL)
        assert not (run.path / "result.json").exists()
        arguments = ["run", "--resume", "run", "--checkpoint-every", "0"]
    process = popen(*arguments)
    _, err = process.communicate()
    assert process.returncode == 0, err
    run.assert_equals(RunFolder(tmp_path / "whole"))
    assert not (run.path / "checkpoint").exists()
