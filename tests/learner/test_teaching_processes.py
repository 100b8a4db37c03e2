"""Processes that teach one folder at once, and processes that are killed while they teach."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from fscil import Learner, UserError
from fscil.learner import home
from fscil.run_lock import RunLock
from learner_helpers import Digits, rows_of

NAMES = [f"digit {i}" for i in (5, 6, 7) for _ in range(6)]
TEACH = """
import sys
from fscil import Learner
learner = Learner.load(sys.argv[1])
for path in sys.argv[3:]:
    learner.teach(sys.argv[2], path)
    learner.teach("shared", path)
"""
DIE_IN_WRITE = """
import os, signal, sys
from fscil import Learner
learner, replace, left = Learner.load(sys.argv[2]), os.replace, int(sys.argv[1])
def replace_or_die(*arguments):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    replace(*arguments)
os.replace = replace_or_die
learner.teach("new", sys.argv[3])
"""


@pytest.mark.slow
def test_two_processes_teach_one_folder(folder: Path, digits: Digits) -> None:
    given = {"first": digits["digit 5"], "second": digits["digit 6"]}
    taught = [
        subprocess.Popen([sys.executable, "-c", TEACH, str(folder), name, *map(str, paths)])
        for name, paths in given.items()
    ]
    assert [process.wait() for process in taught] == [0, 0]
    learner = Learner.load(folder)
    assert list(learner.classes_) == ["digit 0", "digit 1", "digit 2", "first", "second", "shared"]
    assert {name: len(learner.photos(name)) for name in ("first", "second", "shared")} == {
        "first": 12, "second": 12, "shared": 24,
    }  # fmt: skip
    assert len(learner.history()) == 3 + 48


def test_an_open_learner_sees_what_others_teach(folder: Path, digits: Digits) -> None:
    mine, other = Learner.load(folder), Learner.load(folder)
    other.teach("new", digits["digit 7"][:5])
    assert mine.predict(digits["digit 7"][5])[0].best == "new"
    mine.teach("newer", digits["digit 8"][:5])
    assert "newer" in other.classes_
    assert mine.undo().what == "newer: 5 photos"
    assert "newer" not in other.classes_


def test_a_folder_that_stays_locked_is_told(folder: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "PATIENCE", 0.05)
    learner, lock = Learner.load(folder), RunLock(folder)
    lock.take()
    try:
        with pytest.raises(
            UserError, match=f"is being taught by process {os.getpid()} on .*; try again when it is done"
        ):
            learner.teach("new", digits["digit 7"])
        assert "digit 0" in {each.best for each in learner.predict(digits["digit 0"])}  # reading needs no lock
    finally:
        lock.release()
    assert learner.teach("new", digits["digit 7"]).new == 12


def test_threads_teach_and_predict_at_once(folder: Path, digits: Digits) -> None:
    learner = Learner.load(folder)

    def teach(name: str) -> int:
        return sum(learner.teach(name, path).new for path in digits[name][:6])

    def predict(_: int) -> set[str]:
        return {each.best for each in learner.predict(digits["digit 0"][:2])}

    with ThreadPoolExecutor(6) as pool:
        taught = [pool.submit(teach, name) for name in list(digits)[5:8]]
        answers = list(pool.map(predict, range(20)))
        assert [each.result() for each in taught] == [6, 6, 6]
    assert all(answer <= set(digits) for answer in answers)
    alone = Learner("embedded").fit([path for name in digits for path in digits[name][:6]][30:48], NAMES)
    assert all(torch.equal(rows_of(learner)[name], row) for name, row in rows_of(alone).items())


def test_a_folder_that_was_removed_is_not_made_again(folder: Path, digits: Digits) -> None:
    learner = Learner.load(folder)
    shutil.rmtree(folder)
    with pytest.raises(UserError, match="is no longer there"):
        learner.teach("new", digits["digit 7"][0])
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("write", "taught"), [(0, False), (1, True)], ids=["classes", "card"])
def test_a_kill_inside_a_write_leaves_the_old_or_the_new(
    folder: Path, digits: Digits, write: int, taught: bool
) -> None:
    """Kills at any moment are among the slow tests."""
    process = subprocess.run([sys.executable, "-c", DIE_IN_WRITE, str(write), str(folder), str(digits["digit 5"][0])])
    assert process.returncode == -signal.SIGKILL
    assert list(folder.glob(".*.part"))
    learner = Learner.load(folder)
    assert ("new" in learner.classes_) is taught
    assert learner.teach("new", digits["digit 5"][0]).new == (not taught)
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md", "classes.safetensors", "config.json", "model.safetensors",
    ]  # fmt: skip
