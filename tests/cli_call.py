"""The command line inside the test's own process; the fixture `fscil` of conftest.py calls it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fscil import cli


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Fscil = Callable[..., Outcome]


def caller(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fscil:
    def call(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["fscil", *map(str, arguments)])
        code: object = 0
        try:
            cli.main()
        except SystemExit as exit_:
            code = exit_.code or 0
        printed = capsys.readouterr()
        assert isinstance(code, int)
        return Outcome(code, printed.out, printed.err)

    return call
