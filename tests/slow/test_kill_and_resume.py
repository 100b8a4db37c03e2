"""A run that is killed again and again ends with the numbers of an uninterrupted one."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from interrupted_runs import ARGUMENTS, RunFolder, signal_when

from cli_process import fscil_process, popen

pytestmark = pytest.mark.slow


def moments(seed: int) -> list[tuple[str, int]]:
    """Ten (stage, lines) in order: when the stage has that many lines in metrics.jsonl, the process dies."""
    drawn = random.Random(seed)
    pretraining = sorted(drawn.sample(range(1, 5), 3))  # of 5 epochs
    meta_training = sorted(drawn.sample(range(1, 10), 4))  # of 10 segments
    sessions = sorted(drawn.sample(range(1, 13), 3))  # of 4 x 4 sessions
    return [
        *(("pretrain", lines) for lines in pretraining),
        *(("meta-train", lines) for lines in meta_training),
        *(("session", lines) for lines in sessions),
    ]


def test_ten_kills_leave_no_trace(whole: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    arguments: tuple[str, ...] = (*ARGUMENTS, "--out", "run")
    planned = moments(seed=20)
    assert len(planned) == 10
    for number, (stage, lines) in enumerate(planned):
        process = popen(*arguments, cwd=tmp_path)
        # every other time while a file is being written, if that can be caught before the next line
        in_a_write = number % 2 == 1

        def now(stage: str = stage, lines: int = lines, in_a_write: bool = in_a_write) -> bool:
            reached = run.count(stage)
            return reached > lines or (reached == lines and (not in_a_write or any(run.path.rglob(".*.part"))))

        signal_when(process, now, signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert not (run.path / "result.json").exists()
        arguments = ("run", "--resume", "run", "--checkpoint-every", "0")
    code, _, err = fscil_process(*arguments, cwd=tmp_path)
    assert code == 0, err
    run.assert_equals(whole)


def test_a_streamed_run_survives_kills_between_and_within_epochs(
    photo_folder: Callable[..., Path], tmp_path: Path
) -> None:
    """Photos that are read while training, prepared three steps at a time where an epoch has five."""
    photos = photo_folder(classes=7, images=35, size=70)
    arguments = (
        "run", "limit", "folder", f"path={photos}", "stream=always", "segment_mib=1", "size=64", "encoder=resnet20",
        "way=3", "shot=2", "epochs=2", "batch=20", "fake_way=1", "fake_shot=2", "fake_queries=1", "meta_steps=4",
        "meta_batch_steps=1", "check=false", "--checkpoint-every", "0",
    )  # fmt: skip
    code, _, err = fscil_process(*arguments, "--out", "whole", cwd=tmp_path)
    assert code == 0, err
    whole, run = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "run")
    assert whole.count("pretrain") == 4
    arguments = (*arguments, "--out", "run")
    for stage, lines, number, code in (
        ("pretrain", 1, signal.SIGKILL, -signal.SIGKILL), ("pretrain", 2, signal.SIGINT, 130),
        ("meta-train", 2, signal.SIGKILL, -signal.SIGKILL),
    ):  # fmt: skip
        process = popen(*arguments, cwd=tmp_path)
        signal_when(process, lambda stage=stage, lines=lines: run.count(stage) >= lines, number)
        assert process.returncode == code
        arguments = ("run", "--resume", "run", "--checkpoint-every", "0")
    code, _, err = fscil_process(*arguments, cwd=tmp_path)
    assert code == 0, err
    run.assert_equals(whole)


def test_ctrl_c_can_be_resumed(whole: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    process = popen(*ARGUMENTS, "--out", "run", cwd=tmp_path)
    signal_when(process, lambda: run.count("pretrain") >= 2, signal.SIGINT)
    assert process.returncode == 130
    code, _, err = fscil_process("run", "--resume", "run", cwd=tmp_path)
    assert code == 0, err
    run.assert_equals(whole)
