"""The command line as users run it: in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fscil

SOURCE = Path(fscil.__file__).parents[1]


TORCHRUN = ("-m", "torch.distributed.run")
TWO_PROCESSES = (*TORCHRUN, "--standalone", "--nproc-per-node", "2")


def popen(
    *arguments: str | Path, cwd: Path, cache: str | Path = "off", by: Sequence[str] = (), **options: Any
) -> subprocess.Popen[str]:
    """`python -m fscil ARGUMENTS` with one thread, started in the test's own folder, possibly by torchrun."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "FSCIL_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    environment["CUDA_VISIBLE_DEVICES"] = ""  # bits are compared, and a GPU may be shared
    environment.pop("FSCIL_DATA", None)
    command = [sys.executable, *by, "-m", "fscil", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def fscil_process(*arguments: str | Path, cwd: Path, cache: str | Path = "off", **options: Any) -> tuple[int, str, str]:
    """The same, until it exits: exit code, standard output, standard error."""
    process = popen(*arguments, cwd=cwd, cache=cache, **options)
    out, err = process.communicate()
    return process.returncode, out, err


def assert_one_clear_line(err: str) -> None:
    """A user's mistake: one line, no traceback."""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
