"""Workers whose torchrun was killed and could not end them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from interrupted_runs import RunFolder
from test_torchrun import process_of, wait_for

from cli_process import TORCHRUN, fscil_process, popen

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="processes of others cannot be waited for"),
]

# it would train for an hour
ENDLESS = ("run", "decoupled-cosine", "digits", "epochs=5000", "--checkpoint-every", "0", "--out", "run")


def wait_for_exit(pid: int, seconds: int) -> None:
    """Wait for a process that is not a child of this one."""
    import select

    handle = os.pidfd_open(pid)
    try:
        assert select.select([handle], [], [], seconds)[0], f"process {pid} is still there"
    finally:
        os.close(handle)


@pytest.mark.parametrize("processes", [1, 2])
def test_they_end_by_themselves_and_the_run_can_be_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setenv("FSCIL_TIMEOUT", "60")
    run = RunFolder(tmp_path / "run")
    by = (*TORCHRUN, "--standalone", "--nproc-per-node", str(processes))
    torchrun = popen(*ENDLESS, cwd=tmp_path, by=by)
    wait_for(torchrun, lambda: run.count("pretrain") >= 2)
    workers = [process_of(rank, torchrun.pid) for rank in range(processes)]
    torchrun.send_signal(signal.SIGKILL)
    try:
        for worker in workers:
            wait_for_exit(worker, 60)
    except AssertionError:
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        raise
    _, err = torchrun.communicate(timeout=60)
    assert "Traceback" not in err
    if processes > 1:
        (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
        assert line.endswith("continue with: fscil run --resume run")
    assert not (run.path / "result.json").exists()
    code, _, err = fscil_process("report", "run", cwd=tmp_path)  # nothing in it is half a result
    assert code == 2, err


def test_a_process_that_a_shell_started_outlives_the_shell(tmp_path: Path) -> None:
    """Its parent may exit on purpose: only torchrun is watched."""
    variables = "RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500"
    arguments = "run decoupled-cosine digits epochs=1 --out run"
    shell = subprocess.Popen(
        ["sh", "-c", f"{variables} FSCIL_CACHE=off {sys.executable} -m fscil {arguments} > out 2> err & echo $!"],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    worker = int(shell.communicate(timeout=60)[0])
    wait_for_exit(worker, 120)
    assert (tmp_path / "run" / "result.json").exists(), (tmp_path / "err").read_text()
