"""Started by torchrun: what a refused run looks like."""

from __future__ import annotations

from pathlib import Path

from cli_process import TWO_PROCESSES, fscil_process


def test_a_refused_run_is_one_line_and_exit_code_2_in_every_process(tmp_path: Path) -> None:
    code, out, err = fscil_process("run", "limit", "digits", "epoch=1", "--out", "run", cwd=tmp_path, by=TWO_PROCESSES)
    assert (code != 0, out) == (True, "")
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert "did you mean 'epochs'" in line
    assert [line.split()[2] for line in err.splitlines() if "exitcode  :" in line] == ["2", "2"]  # torchrun's summary
    assert not list(tmp_path.iterdir())
