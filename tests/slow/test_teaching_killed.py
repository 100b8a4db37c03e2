"""Processes that teach one folder and are killed with -9 at any moment: what they acknowledged is there, once, whole.

Every process is a new interpreter. It says each lesson through a pipe once `teach` has returned; the moment of the kill
is drawn from a seed and counted from such an answer, so that it may fall anywhere into the next lesson.
"""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
from pathlib import Path

import pytest

from cli_process import SOURCE
from fscil import Learner
from fscil.learner import Taught

pytestmark = pytest.mark.slow

KILLS, KILLS_OF_ONE = 50, 10
LESSON = 0.05  # seconds, about
TEACH = """
import sys
import numpy as np
from fscil import Learner

folder, who, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
learner = Learner.load(folder)
for i in range(first, last):
    photo = np.random.default_rng([ord(who), i]).integers(0, 256, (32, 32, 3), np.uint8)
    learner.teach(f"{who} {i}", photo)
    learner.teach("all", photo)
    print(i, flush=True)
"""
ENDLESS = 1_000_000
KEPT = {"README.md", "classes.safetensors", "config.json", "model.safetensors"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Learner("embedded").save(tmp_path / "model")
    return tmp_path / "model"


class Teacher:
    """A process that teaches the classes `who first`, `who first+1`, ..., and every photo as `all`, too."""

    def __init__(self, folder: Path, who: str, first: int, last: int = ENDLESS) -> None:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", TEACH, str(folder), who, str(first), str(last)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, bufsize=0)
        assert self.process.stdout is not None
        self.out, self.said = self.process.stdout, b""

    def hear(self, lessons: int) -> None:
        """Wait until that many lessons were acknowledged."""
        while self.said.count(b"\n") < lessons:
            part = self.out.read(4096)
            assert part, "it ended before it was killed"
            self.said += part

    def kill_within(self, seconds: float) -> list[int]:
        """Kill it after that time, or right after its next answer; returns the lessons that it acknowledged."""
        select.select([self.out], [], [], seconds)
        self.process.kill()
        return self.acknowledged()

    def acknowledged(self) -> list[int]:
        with self.out:
            self.said += self.out.read()
        self.process.wait()
        return [int(line) for line in self.said.split()]


def lessons(folder: Path, who: str) -> list[int]:
    """Numbers of the taught classes of one teacher, read anew from the folder, whose checksums are right."""
    return sorted(int(each.name.split()[1]) for each in Taught(folder).classes() if each.name.startswith(f"{who} "))


def assert_whole(folder: Path, taught: dict[str, list[int]], killed: int) -> None:
    """Every class has its one photo; `all` has every photo once, but for the last of teachers that were killed."""
    photos = Taught(folder).photos()
    own = {each.sha256 for each in photos if each.name != "all"}
    shared = [each.sha256 for each in photos if each.name == "all"]
    assert len(own) == len(photos) - len(shared) == sum(map(len, taught.values()))
    assert len({*shared}) == len(shared)
    assert {*shared} <= own
    assert len(own) - len(shared) <= killed


def test_kills_lose_nothing_that_was_acknowledged(folder: Path) -> None:
    moments, following = random.Random(5), 0
    for _ in range(KILLS):
        teacher = Teacher(folder, "a", following)
        teacher.hear(moments.randrange(1, 4))
        acknowledged = teacher.kill_within(moments.uniform(0, LESSON))
        assert acknowledged == list(range(following, acknowledged[-1] + 1))
        taught = lessons(folder, "a")
        assert taught == list(range(len(taught)))  # those of earlier processes, too
        assert len(taught) - 1 - acknowledged[-1] in (0, 1)  # one may have been written and no longer acknowledged
        following = len(taught)
    assert following >= KILLS
    assert_whole(folder, {"a": taught}, KILLS)
    learner = Learner.load(folder)
    assert len(learner.classes_) == following + 1
    learner.undo()  # sweeps what was left half-written
    assert {path.name for path in folder.iterdir()} == KEPT


def test_of_two_processes_one_is_killed_and_the_other_goes_on(folder: Path) -> None:
    moments, following = random.Random(7), 0
    taught: dict[str, list[int]] = {"a": [], "b": []}
    for number in range(KILLS_OF_ONE):
        first, second = Teacher(folder, "a", following), Teacher(folder, "b", 8 * number, 8 * (number + 1))
        second.hear(1)  # both are at it
        first.hear(1)
        acknowledged = first.kill_within(moments.uniform(0, LESSON))
        assert second.acknowledged() == list(range(8 * number, 8 * (number + 1)))
        assert second.process.returncode == 0
        taught = {who: lessons(folder, who) for who in ("a", "b")}
        assert taught["b"] == list(range(8 * (number + 1)))
        assert taught["a"] == list(range(len(taught["a"])))
        assert len(taught["a"]) - 1 - acknowledged[-1] in (0, 1)
        following = len(taught["a"])
        assert_whole(folder, taught, number + 1)
