"""The command line in many processes, quickly: each is forked from a server that has imported everything already."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

HANG = 120  # seconds after which a process is said to hang; the slowest takes a few

os.environ["OMP_NUM_THREADS"] = "1"  # the server imports torch, which reads it once; processes run side by side
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["torch", "fscil.cli", "fscil.runs", "fscil.comparison", "fscil.reproduce", "fscil.report.html", "fscil.classifier"]
)
ENVIRONMENT = {"FSCIL_CACHE": "off", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}


@dataclass
class Attempt:
    """A process that runs `fscil ARGUMENTS`, and what it said once it is over."""

    arguments: Sequence[str]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    die_in_write: int | None = None  # it kills itself inside this write, before the file has its name
    process: BaseProcess = field(init=False)

    def __post_init__(self) -> None:
        self.told = self.folder.parent / f"told-{os.urandom(4).hex()}"
        environment = {**ENVIRONMENT, **self.environment}
        self.process = CONTEXT.Process(
            target=run_here, args=([*map(str, self.arguments)], self.folder, environment, self.told, self.die_in_write)
        )
        self.process.start()

    def kill_after(self, seconds: float) -> bool:
        """Kill it with -9 unless it ends before; says whether it had to be killed."""
        self.process.join(seconds)
        running = self.process.is_alive()
        self.process.kill()
        self.process.join()
        return running

    def wait(self) -> Attempt:
        self.process.join(HANG)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            pytest.fail(f"fscil {' '.join(self.arguments)} hangs; so far it said: {self.err}")
        return self

    @property
    def code(self) -> int | None:
        return self.process.exitcode

    @property
    def out(self) -> str:
        return self.told.with_suffix(".out").read_text(errors="replace")

    @property
    def err(self) -> str:
        return self.told.with_suffix(".err").read_text(errors="replace")


def run_here(
    arguments: list[str], folder: Path, environment: Mapping[str, str], told: Path, die_in_write: int | None
) -> None:
    """In the new process: become `fscil ARGUMENTS`, started in that folder."""
    os.chdir(folder)
    os.environ.update(environment)
    os.environ.pop("FSCIL_DATA", None)
    for stream, name, suffix in ((1, "stdout", ".out"), (2, "stderr", ".err")):
        os.dup2(os.open(told.with_suffix(suffix), os.O_WRONLY | os.O_CREAT, 0o600), stream)
        setattr(sys, name, io.TextIOWrapper(io.FileIO(stream, "w"), encoding="utf-8", errors="backslashreplace"))
    sys.stdin = open(os.devnull)  # noqa: SIM115
    sys.argv = ["fscil", *arguments]
    if die_in_write is not None:
        kill_in_write(die_in_write)
    from fscil.cli import main

    main()


def kill_in_write(number: int) -> None:
    """From now on, the write with that number is never finished: its bytes are there, but not under their name."""
    from fscil import files

    left = iter(range(number, -1, -1))
    replace = os.replace

    def replace_or_die(*arguments: object) -> None:
        if next(left, 0) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*arguments)  # type: ignore[arg-type]

    files.os.replace = replace_or_die  # type: ignore[assignment, attr-defined]


def fscil(*arguments: str, folder: Path, **options: object) -> Attempt:
    """The same, until it ends."""
    return Attempt(arguments, folder, **options).wait()  # type: ignore[arg-type]
