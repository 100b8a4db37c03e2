"""What users see when processes cannot continue together."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_process import TWO_PROCESSES, fscil_process
from fscil import distributed
from fscil.errors import LostContact, UserError
from fscil.reading import thread_count

TORCHRUN_SETS = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.slow
def test_a_refused_run_is_one_line_and_exit_code_2_in_every_process(tmp_path: Path) -> None:
    code, out, err = fscil_process("run", "limit", "digits", "epoch=1", "--out", "run", cwd=tmp_path, by=TWO_PROCESSES)
    assert (code != 0, out) == (True, "")
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert "did you mean 'epochs'" in line
    assert [line.split()[2] for line in err.splitlines() if "exitcode  :" in line] == ["2", "2"]  # torchrun's summary
    assert not list(tmp_path.iterdir())


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_TIMEOUT", "1")
    with pytest.raises(LostContact, match=r"process 0 lost contact .*nothing received within the 1 s of FSCIL_TIMEOUT"):
        distributed.poll(lambda: False)


def test_what_comes_in_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_TIMEOUT", "60")
    answers = iter([False, False, True])
    distributed.poll(lambda: next(answers))
    assert not list(answers)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"RANK": "x"}, "RANK=x is not a whole number from 0 to 1"),
        ({"RANK": ""}, "RANK= is not a whole number"),
        ({"RANK": "-1"}, "RANK=-1 is not"),
        ({"RANK": "2"}, "RANK=2 is not"),
        ({"WORLD_SIZE": "-1"}, "WORLD_SIZE=-1 is not a whole number from 1"),
        ({"WORLD_SIZE": "1.5"}, "WORLD_SIZE=1.5 is not"),
        ({"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE=9"),
        ({"WORLD_SIZE": None}, "RANK is set, but not WORLD_SIZE; start processes with torchrun, or unset RANK"),
        ({"WORLD_SIZE": None, "MASTER_ADDR": None, "MASTER_PORT": None}, "not WORLD_SIZE, MASTER_ADDR, MASTER_PORT"),
        ({"MASTER_PORT": "abc"}, "MASTER_PORT=abc is not"),
        ({"MASTER_PORT": "65536"}, "MASTER_PORT=65536 is not"),
        ({"LOCAL_RANK": "x"}, "LOCAL_RANK=x is not"),
        ({"FSCIL_TIMEOUT": "abc"}, "FSCIL_TIMEOUT=abc is not"),
        ({"FSCIL_TIMEOUT": "nan"}, "FSCIL_TIMEOUT=nan is not"),
        ({"FSCIL_TIMEOUT": "-1"}, "FSCIL_TIMEOUT=-1 is not"),
        ({"FSCIL_TIMEOUT": "1e308"}, "FSCIL_TIMEOUT=1e308 is not"),
        ({"FSCIL_TIMEOUT": "9" * 30}, "FSCIL_TIMEOUT=9"),
    ],
)
def test_an_environment_that_makes_no_sense_is_refused(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str | None], message: str
) -> None:
    for name, value in (TORCHRUN_SETS | changed).items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=message):
        distributed.initialise()


@pytest.mark.parametrize("value", ["0", "x", "-1"])
def test_a_number_of_processes_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", value)
    with pytest.raises(UserError, match=f"LOCAL_WORLD_SIZE={value} is not a whole number from 1"):
        thread_count()
