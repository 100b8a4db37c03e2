"""Real torchrun jobs: on one machine, on two that share no disk, and with a process that dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from interrupted_runs import ARGUMENTS, RunFolder

from cli_process import TORCHRUN, TWO_PROCESSES, fscil_process, popen

pytestmark = pytest.mark.slow

RESUME = ("run", "--resume", "run", "--checkpoint-every", "0")


def complaints(err: str) -> list[str]:
    """Our own lines, without torchrun's many about exit codes."""
    return [line for line in err.splitlines() if line.startswith("error: ")]


def wait_for(process: subprocess.Popen[str], ready: Callable[[], bool]) -> None:
    while not ready():
        try:
            process.wait(timeout=0.02)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(f"it ended too early: {process.communicate()}")


def process_of(rank: int, torchrun: int) -> int:
    """The process that torchrun started with that rank."""
    children = Path(f"/proc/{torchrun}/task/{torchrun}/children").read_text().split()
    (found,) = [pid for pid in children if f"\0RANK={rank}\0" in f"\0{Path(f'/proc/{pid}/environ').read_text()}\0"]
    return int(found)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_dies_ends_the_job_and_another_number_of_them_goes_on(
    whole: RunFolder, tmp_path: Path, rank: int
) -> None:
    run = RunFolder(tmp_path / "run")
    process = popen(*ARGUMENTS, "--out", "run", cwd=tmp_path, by=TWO_PROCESSES)
    wait_for(process, lambda: run.count("pretrain") >= 2)
    os.kill(process_of(rank, process.pid), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    (line,) = complaints(err)
    assert f"process {1 - rank} lost contact" in line
    assert line.endswith("continue with: fscil run --resume run")
    assert not (run.path / "result.json").exists()

    code, _, err = fscil_process(*RESUME, cwd=tmp_path, by=TWO_PROCESSES if rank else ())
    assert code == 0, err
    steps, expected = (sorted((line["stage"], line["segment"]) for line in each.lines()) for each in (run, whole))
    assert steps == expected  # no line is missing, none is there twice
    assert not list(run.path.rglob(".*.part"))


def test_a_job_that_is_told_to_stop_says_how_to_go_on(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    process = popen(*ARGUMENTS, "--out", "run", cwd=tmp_path, by=TWO_PROCESSES)
    wait_for(process, lambda: run.count("pretrain") >= 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert [line for line in err.splitlines() if "continue with" in line] == [
        "interrupted; continue with: fscil run --resume run"
    ]


def test_two_machines_that_share_no_disk(tmp_path: Path) -> None:
    """The command of docs/distributed.md, with both machines here: only the first needs the run folder."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    both = ("--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "localhost", "--master-port", str(port))
    machines = [tmp_path / "first", tmp_path / "second"]

    def start(*arguments: str) -> list[tuple[int, str, str]]:
        jobs = [
            popen(*arguments, cwd=machine, by=(*TORCHRUN, *both, "--node-rank", str(i)))
            for i, machine in enumerate(machines)
        ]
        said = [job.communicate(timeout=300) for job in jobs]
        return [(job.returncode, *each) for job, each in zip(jobs, said, strict=True)]

    for machine in machines:
        machine.mkdir()
    (code, out, err), (other_code, other_out, _) = start(
        "run", "decoupled-cosine", "digits", "epochs=1", "--out", "run"
    )
    assert (code, other_code) == (0, 0), err
    assert "decoupled-cosine" in out
    assert other_out == ""
    assert RunFolder(machines[0] / "run").result()["device"].startswith("2 x cpu")
    assert not list(machines[1].iterdir())

    # the second machine sees nothing wrong with the folder, but exits with the first
    (code, _, err), (other_code, _, other_err) = start("run", "decoupled-cosine", "digits", "--out", "run")
    assert min(code, other_code) > 0
    (line,) = complaints(err)
    assert "already holds a run" in line
    assert not complaints(other_err)
