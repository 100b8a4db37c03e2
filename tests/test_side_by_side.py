"""Several runs of a comparison at once, each in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import sys
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

from cli_call import Fscil
from fscil import grid, runs
from fscil.config import resolve
from fscil.errors import UserError
from fscil.side_by_side import Child, compute_all, encoder_of, places_for

ROWS = [grid.Row("teen", "teen", ("steps=1",)), grid.Row("means", "decoupled-cosine", ("steps=1",))]


@pytest.mark.slow
def test_runs_at_once_give_the_numbers_of_runs_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of those with the same encoder only one trains it."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    jobs = grid.build_jobs("digits", ROWS, [1], prefix="t")
    found = {}
    for at_once in (1, 2):
        monkeypatch.setenv("FSCIL_CACHE", str(tmp_path / f"cache{at_once}"))
        said = Console(file=StringIO(), width=200)
        environment = runs.RunEnvironment(torch.device("cpu"), tmp_path / f"out{at_once}", at_once=at_once)
        found[at_once] = grid.run_grid(jobs, environment, said)
    lines = said.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.partition(",")[0] for line in lines] == [
        "2 runs: 2 to run",
        "began: teen on digits",
        "ended: teen on digits",
        "began: means on digits",
        "ended: means on digits",
    ]
    assert "; 1 of 2 left (about " in lines[2]
    for row, (one,) in found[1].items():
        (other,) = found[2][row]
        assert other.accuracy == one.accuracy
        assert other.seconds["pretrain"]["cached"] == one.seconds["pretrain"]["cached"] == (row == "means")


def test_what_goes_wrong_in_a_process_is_one_line(fscil: Fscil) -> None:
    outcome = fscil("compare", "digits", "turned=0.5", "--methods", "fact", "--seeds", "2", "--jobs", "2")
    assert outcome.code == 2
    last = outcome.err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert re.search("fact on digits, seed [12]: turned", last)
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (("limit", "recipe=paper"), ("teen", "recipe=paper"), True),
        (("limit",), ("decoupled-cosine", "recipe=paper"), True),
        (("limit",), ("decoupled-cosine",), False),  # another recipe
        (("limit",), ("limit", "augmentation=basic"), False),
        (("limit",), ("limit", "validation=classes"), False),
        (("limit",), ("limit", "trial=2"), True),
        (("limit",), ("limit", "fake_way=5"), True),
        (("fact", "recipe=paper"), ("limit",), False),  # a training of its own
    ],
)
def test_runs_that_share_an_encoder_are_known(a: tuple[str, ...], b: tuple[str, ...], same: bool) -> None:
    configs = [resolve(preset, "cifar100", settings) for preset, *settings in (a, b)]
    assert (encoder_of(configs[0]) == encoder_of(configs[1])) == same
    assert encoder_of(configs[0]) != encoder_of(resolve(a[0], "cifar100", a[1:], seed=2))


class Stub(Child):
    """Its process is a line of Python."""

    line = ""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", self.line]


def stub(line: str, seed: int, folder: Path) -> Child:
    child = Stub(resolve("teen", "digits", seed=seed), runs.RunEnvironment(torch.device("cpu"), folder), resumes=False)
    child.line = line  # type: ignore[attr-defined]
    return child


def assert_ended(children: list[Child]) -> None:
    for child in children:
        if child.process is not None:
            child.process.wait(timeout=60)  # raises if it goes on


FOREVER = "import signal; signal.pause()"


@pytest.mark.parametrize("at_once", [1, 2, 4])
@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("print('error: no data'); raise SystemExit(2)", UserError, "^teen on digits, seed 0: no data$"),
        ("import os; os.kill(os.getpid(), 9)", UserError, "seed 0: its process was ended by SIGKILL; if memory ran"),
        ("1 / 0", RuntimeError, "(?s)seed 0: exit code 1.*Traceback.*ZeroDivisionError"),
    ],
)
def test_one_that_fails_is_named_and_the_others_end(
    tmp_path: Path, at_once: int, line: str, error: type[Exception], message: str
) -> None:
    """Those that run are ended, which would otherwise run forever; the others never begin."""
    children = [stub(line if seed == 0 else FOREVER, seed, tmp_path) for seed in range(6)]
    began: list[Child] = []
    with pytest.raises(error, match=message):
        compute_all(children, at_once, began.append, lambda child: None)
    assert len(began) <= 2 * at_once
    assert_ended(children)


def test_sigterm_ends_the_processes_too(tmp_path: Path) -> None:
    children = [stub(FOREVER, seed, tmp_path) for seed in range(3)]
    begun: list[Child] = []

    def began(child: Child) -> None:
        begun.append(child)
        if len(begun) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"):
        compute_all(children, 2, began, lambda child: None)
    assert_ended(children)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_file_of_the_current_folder_is_not_taken_for_a_module(fscil: Fscil, tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('a queue of mine')")
    outcome = fscil("compare", "cifar100", "--methods", "teen", "--seeds", "1", "--jobs", "2", "--root", tmp_path)
    assert outcome.code == 2
    assert "a queue of mine" not in outcome.err


@pytest.mark.parametrize(
    ("count", "visible", "expected"),
    [(1, None, [None] * 3), (2, None, ["0", "1", "0"]), (2, "5,7", ["5", "7", "5"]), (4, None, ["0", "1", "2"])],
)
def test_processes_are_spread_over_gpus(
    monkeypatch: pytest.MonkeyPatch, count: int, visible: str | None, expected: list[str | None]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = places_for(3, torch.device("cuda"))
    assert [each.get("CUDA_VISIBLE_DEVICES") for each in found] == expected
    assert [each["OMP_NUM_THREADS"] for each in found] == ["2"] * 3
    assert all("CUDA_VISIBLE_DEVICES" not in each for each in places_for(3, torch.device("cpu")))
