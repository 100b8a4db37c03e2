"""Disks that are full and folders that cannot be written: one clear line, nothing lost."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from interrupted_runs import ARGUMENTS, RunFolder, signal_when

from cli_process import assert_one_clear_line, fscil_process, popen
from fscil.engine.checkpoint import load_tensors

pytestmark = pytest.mark.slow


def no_file_above(size: int) -> Callable[[], None]:
    """For the child process: every write that makes a file larger fails, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_full_disk_costs_nothing_but_time(whole: RunFolder, tmp_path: Path) -> None:
    run, stopped = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "stopped")
    process = popen(*ARGUMENTS, "--out", "stopped", cwd=tmp_path)
    signal_when(process, lambda: stopped.count("pretrain") >= 3, signal.SIGKILL)
    size = (stopped.path / "checkpoint" / "stage-pretrain.safetensors").stat().st_size
    room = no_file_above(size + 1000)  # enough for pre-training's checkpoints; those of meta-training are larger

    code, out, err = fscil_process(*ARGUMENTS, "--out", "run", cwd=tmp_path, preexec_fn=room)
    assert (code, out) == (2, "")
    assert_one_clear_line(err)
    assert "cannot write" in err
    assert "stage-meta-train.safetensors" in err
    assert [path.name for path in (run.path / "checkpoint").iterdir()] == ["stage-pretrain.safetensors"]
    assert load_tensors(run.path / "checkpoint" / "stage-pretrain.safetensors")[1]["segments_done"] == 5

    # half of meta-training with room, the next checkpoint without
    process = popen("run", "--resume", "run", "--checkpoint-every", "0", cwd=tmp_path)
    signal_when(process, lambda: run.count("meta-train") >= 4, signal.SIGKILL)
    checkpoint = run.path / "checkpoint" / "stage-meta-train.safetensors"
    before = checkpoint.read_bytes()
    code, _, err = fscil_process("run", "--resume", "run", "--checkpoint-every", "0", cwd=tmp_path, preexec_fn=room)
    assert code == 2
    assert_one_clear_line(err)
    assert checkpoint.read_bytes() == before
    assert 3 <= load_tensors(checkpoint)[1]["segments_done"] < 10

    code, _, err = fscil_process("run", "--resume", "run", cwd=tmp_path)
    assert code == 0, err
    run.assert_equals(whole)


@pytest.mark.parametrize("folder", ["file/run", "/proc/fscil/run"])
def test_a_folder_that_cannot_be_written(tmp_path: Path, folder: str) -> None:
    """Below a regular file, and in a kernel file system where even root may not write."""
    (tmp_path / "file").write_text("in the way")
    code, out, err = fscil_process("run", "decoupled-cosine", "digits", "epochs=1", "--out", folder, cwd=tmp_path)
    assert (code, out) == (2, "")
    assert_one_clear_line(err)
    assert "choose a folder you may write to" in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
