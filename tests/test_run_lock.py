"""A run folder belongs to one process; a refused run takes back what it made, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_process import SOURCE
from fscil import runs
from fscil.config import resolve
from fscil.errors import UserError
from fscil.run_lock import RunLock, held
from run_helpers import QUIET, PowerCut, PowerCutError, Start, where

HOLD = "import sys; from pathlib import Path; from fscil.run_lock import RunLock; RunLock(Path(sys.argv[1])).take(); "
HOLD += "print('taken', flush=True); sys.stdin.read()"


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of `run`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")], env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "taken\n"
    yield process
    process.kill()
    process.communicate()


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_a_second_process_is_told_who_has_the_folder(
    start: Start, tmp_path: Path, other_process: subprocess.Popen[str]
) -> None:
    with pytest.raises(UserError, match=rf"run is in use by process {other_process.pid} on .+, since \d{{4}}-"):
        start("decoupled-cosine")
    with pytest.raises(UserError, match="is in use by"):
        runs.finish(resolve("decoupled-cosine", "tiny"), where(tmp_path / "run"), QUIET)
    assert list(everything(tmp_path)) == ["run", "run/.lock"]


def test_a_lock_dies_with_its_process(start: Start, tmp_path: Path, other_process: subprocess.Popen[str]) -> None:
    other_process.send_signal(signal.SIGKILL)
    other_process.wait()
    assert (tmp_path / "run" / ".lock").exists()
    assert start("decoupled-cosine").seed == 1
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_live_run_cannot_be_resumed_by_another_process(start: Start, tmp_path: Path, power_cut: PowerCut) -> None:
    with power_cut(lines=1), pytest.raises(PowerCutError):
        start("decoupled-cosine", "epochs=2")
    (tmp_path / "run" / ".result.json.0123abcd.part").write_bytes(b"being written")
    owner = RunLock(tmp_path / "run")
    owner.handle = owner._locked()  # as take() does, without sweeping
    before = everything(tmp_path)
    with pytest.raises(UserError, match="is in use by"):
        runs.resume(where(tmp_path / "run"), QUIET)
    assert everything(tmp_path) == before
    owner.release()
    assert runs.resume(where(tmp_path / "run"), QUIET).changed == ["epochs=2"]
    assert not (tmp_path / "run" / ".result.json.0123abcd.part").exists()


def test_a_start_that_is_refused_does_not_hold_the_folder_even_for_a_moment(
    start: Start, tmp_path: Path, power_cut: PowerCut, monkeypatch: pytest.MonkeyPatch
) -> None:
    with power_cut(lines=1), pytest.raises(PowerCutError):
        start("decoupled-cosine")
    with monkeypatch.context() as patch:
        patch.setattr(RunLock, "take", lambda _: pytest.fail("a process that resumes the run would be refused now"))
        with pytest.raises(UserError, match="already holds a run; continue it with --resume"):
            start("decoupled-cosine", seed=2)
    assert runs.resume(where(tmp_path / "run"), QUIET).seed == 1


def test_a_lock_file_that_its_owner_just_removed_is_not_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process opens the file, then the first removes it and is gone; a third may make a new one."""
    first, second, third = (RunLock(tmp_path) for _ in range(3))
    first.take()
    opened = os.open

    def slow_open(*arguments: object, **options: object) -> int:
        handle = opened(*arguments, **options)  # type: ignore[arg-type]
        monkeypatch.undo()
        first.release()
        third.take()
        return handle

    monkeypatch.setattr(os, "open", slow_open)
    with pytest.raises(UserError, match="is in use by"):
        second.take()
    third.release()
    second.take()
    second.release()
    assert not list(tmp_path.iterdir())


def test_half_written_files_are_swept_but_nobody_elses(tmp_path: Path) -> None:
    ours = [".config.toml.0123abcd.part", "model/.model.safetensors.89abcdef.part", "checkpoint/.base.00000000.part"]
    others = [".film.mkv.0123abcd.part", "config.toml.part", ".config.toml.part", "photos/.result.json.0123abcd.part"]
    for name in (*ours, *others):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with held(tmp_path):
        pass
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == sorted(others)


@pytest.mark.parametrize("existing", ["", "a", "a/b", "a/b/run"])
def test_a_refused_run_removes_the_folders_that_it_made(start: Start, tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).mkdir(parents=True, exist_ok=True)
    with pytest.raises(UserError, match="lower fake_way"):
        start("limit", "fake_way=50", folder="a/b/run")
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
    assert left == [each for each in ("a", "a/b", "a/b/run") if existing.startswith(each)]


@pytest.mark.parametrize("name", ["report.html", "curve.png", "predictions.safetensors", "model", "result.json"])
def test_nobody_elses_file_is_overwritten(start: Start, tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("my own")
    (tmp_path / "run" / "notes.txt").write_text("my own, too")
    before = everything(tmp_path)
    with pytest.raises(UserError, match="choose another --out"):
        start("decoupled-cosine")
    assert everything(tmp_path) == before


def test_runs_that_start_in_the_same_second_have_folders_of_their_own(tiny_dataset: str) -> None:
    config = resolve("limit", tiny_dataset)
    assert len({runs.new_folder(config) for _ in range(5)}) > 1


@pytest.mark.parametrize("name", ["file/run", "n" * 300, "null\0", "fifo/.."])
def test_what_cannot_be_a_folder_is_refused_in_a_line(start: Start, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    before = everything(tmp_path / "file")
    with pytest.raises(UserError, match=r"cannot be used as a run folder \(.+\); choose a folder you may write to"):
        start("decoupled-cosine", folder=name)
    assert everything(tmp_path / "file") == before


def test_a_fifo_in_the_locks_place_is_refused_and_not_waited_for(start: Start, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / ".lock")
    with pytest.raises(UserError, match="is in the way"):
        start("decoupled-cosine")
