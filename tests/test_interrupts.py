"""Ctrl-C at any moment: exit code 130 and one line. The modules that are interrupted send it to themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_process import SOURCE, popen

SEND = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
CATCHES_IT = f"try:\n    {SEND.replace(chr(10), chr(10) + '    ')}\nexcept BaseException:\n    pass\n"
TWICE = """
import os, signal
from fscil import runs
def execute(*_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
runs.execute = execute
"""
WHILE_LEAVING = """
import atexit, os, signal
from fscil import runs
runs.execute = lambda *_: os.kill(os.getpid(), signal.SIGINT)
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
"""
RUN = ("run", "decoupled-cosine", "digits", "epochs=1", "--out", "run")


@pytest.mark.parametrize("module", ["typer", "rich", "torch", "sklearn"])
def test_while_something_is_imported(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text(CATCHES_IT if module != "sklearn" else SEND)
    said = "interrupted\n" if module != "sklearn" else "interrupted; continue with: fscil run --resume run\n"
    assert interrupted(tmp_path) == (130, "", said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "said"),
    [(TWICE, "interrupted\n"), (WHILE_LEAVING, "interrupted; continue with: fscil run --resume run\n")],
)
def test_twice(tmp_path: Path, program: str, said: str) -> None:
    (tmp_path / "program.py").write_text(f"{program}\nfrom fscil.__main__ import main\nmain()\n")
    process = popen(*RUN, cwd=tmp_path, by=("-c", "import runpy, sys; del sys.argv[1:3]; runpy.run_path('program.py')"))
    assert (*process.communicate(timeout=120), process.returncode) == ("", said, 130)


def interrupted(folder: Path) -> tuple[int, str, str]:
    """A run in whose process the modules of the folder stand in for the real ones."""
    put_first = f"import runpy, sys; sys.path[:0] = [{str(folder)!r}, {str(SOURCE)!r}]; del sys.argv[1:3]"
    process = popen(*RUN, cwd=folder, by=("-c", f"{put_first}; runpy.run_module('fscil', run_name='__main__')"))
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err
