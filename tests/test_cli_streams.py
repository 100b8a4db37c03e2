"""Standard output and error that are full, closed or without a reader."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli_call import Fscil
from cli_process import assert_one_clear_line, fscil_process
from fscil.results import Result, read_result, write_result

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason=f"there is no {FULL}")


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """full("stdout"): from now on no byte fits into standard output."""
    with FULL.open("w") as file:
        yield lambda name: monkeypatch.setattr(sys, name, file)


@pytest.mark.parametrize("arguments", ["--help", "methods --json", "encoders", "run limit digits --show-config"])
def test_a_full_output_is_one_line(fscil: Fscil, full: Callable[[str], None], arguments: str) -> None:
    full("stdout")
    found = fscil(*arguments.split())
    assert found.code == 2
    assert_one_clear_line(found.err)
    assert "cannot write to standard output (No space left on device)" in found.err


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_run_is_complete_even_if_it_cannot_be_printed(
    fscil: Fscil, full: Callable[[str], None], tiny_dataset: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    full("stdout")
    found = fscil("run", "decoupled-cosine", tiny_dataset, "--out", "run", *arguments)
    assert found.code == 2
    assert_one_clear_line(found.err)
    assert found.err.endswith("shown again by: fscil run --resume run\n")
    assert read_result(tmp_path / "run").benchmark == "tiny"
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_a_run_goes_on_if_its_progress_cannot_be_shown(
    fscil: Fscil, full: Callable[[str], None], tiny_dataset: str, tmp_path: Path
) -> None:
    full("stderr")
    found = fscil("compare", tiny_dataset, "--methods", "decoupled-cosine", "--seeds", "1", "--out", "runs")
    assert found.code == 0
    assert "decoupled-cosine" in found.out


def test_an_error_that_cannot_be_shown_keeps_its_code(fscil: Fscil, full: Callable[[str], None]) -> None:
    full("stderr")
    assert fscil("nope").code == 2


def test_a_report_is_written_even_if_its_table_cannot_be_printed(
    fscil: Fscil, full: Callable[[str], None], make_result: Callable[..., Result], tmp_path: Path
) -> None:
    write_result(make_result(), tmp_path / "result.json")
    full("stdout")
    assert fscil("report", tmp_path, "--out", "report.html").code == 2
    assert "<html" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        ("> /dev/full", 2, "No space left on device"),
        (">&-", 2, "Bad file descriptor"),
        ("2>&-", 0, ""),
        ("2> /dev/full", 0, ""),
        (">&- 2>&- <&-", 2, ""),
        ("> /dev/full 2> /dev/full", 2, ""),
    ],
)
def test_as_a_process(tmp_path: Path, redirected: str, code: int, said: str) -> None:
    shell = (
        "-c",
        f"import os, sys; os.execvp('sh', ['sh', '-c', '\"$0\" \"$@\" {redirected}', sys.executable, *sys.argv[1:]])",
    )
    found, _, err = fscil_process("--help", cwd=tmp_path, by=shell)
    assert found == code
    assert said in err
    assert err.count("\n") == (1 if said else 0)  # neither a traceback nor "Exception ignored in"


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """What libraries print would end up in it."""
    program = "from fscil.cli.streams import reserve_numbers as reserve; import os; os.close(1); os.close(2); reserve()"
    code, _, _ = fscil_process(cwd=tmp_path, by=("-c", f"{program}; os._exit(os.open('file', os.O_CREAT))"))
    assert code > 2


@pytest.mark.parametrize("name", ["Blüte", os.fsdecode(b"\xff")])
def test_names_that_the_locale_cannot_show(
    make_result: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(variable, value)
    write_result(make_result(class_names=[f"{i} ü" for i in range(10)], note="±"), tmp_path / name / "result.json")
    code, out, err = fscil_process("report", name, "--out", f"{name}.html", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert "report  " in out
    assert (tmp_path / f"{name}.html").is_file()
    code, _, err = fscil_process("report", name, f"{name}-2", cwd=tmp_path)
    assert code == 2
    assert_one_clear_line(err)
