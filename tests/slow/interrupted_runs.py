"""A run of the command line that is to be interrupted, and how to watch it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# LIMIT on the embedded digits, with pre-training, meta-training with an encoder that learns and with dropout, trials
# and sessions; without the check of calibration, which might decide against meta-training
ARGUMENTS = (
    "run", "limit", "digits", "epochs=5", "meta_steps=20", "meta_batch_steps=2", "fake_shot=2", "fake_queries=1",
    "check=false", "trials=3", "--checkpoint-every", "0",
)  # fmt: skip


@dataclass(frozen=True)
class RunFolder:
    path: Path

    def lines(self) -> list[dict[str, Any]]:
        """metrics.jsonl, possibly while it is being written."""
        file = self.path / "metrics.jsonl"
        text = file.read_text() if file.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def count(self, stage: str) -> int:
        return sum(line["stage"] == stage for line in self.lines())

    def result(self) -> dict[str, Any]:
        return json.loads((self.path / "result.json").read_text())

    def assert_equals(self, other: RunFolder, cached: bool = False) -> None:
        """Bit for bit, except for times; a cached encoder leaves no lines of its training."""
        for file in ("predictions.safetensors", "model/model.safetensors", "config.toml"):
            assert (self.path / file).read_bytes() == (other.path / file).read_bytes(), file
        mine, theirs = self.result(), other.result()
        for key in ("accuracy", "trials", "confusion", "harmonic_mean", "config_hash", "parameters"):
            assert mine[key] == theirs[key], key
        told, expected = (
            sorted(
                (line["stage"], line["segment"], line.get("scope", ""), line.get("loss", 0))
                for line in run.lines()
                if not cached or line["stage"] != "pretrain"
            )
            for run in (self, other)
        )
        assert told == expected  # no line is missing or duplicated
        assert not list(self.path.rglob(".*.part"))
        assert not (self.path / "checkpoint").exists()


def signal_when(process: subprocess.Popen[str], ready: Callable[[], bool], number: signal.Signals) -> None:
    """Send the signal as soon as `ready` says so; the process must still be running."""
    while not ready():
        try:
            process.wait(timeout=0.002)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(f"it ended too early: {process.communicate()}")
    process.send_signal(number)
    process.communicate()
