"""What users see when processes cannot continue together."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_process import TWO_PROCESSES, fscil_process
from fscil import distributed
from fscil.errors import LostContact


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
