"""metrics.jsonl: a line per segment and per session, written as it happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fscil.errors import UserError
from fscil.files import write_atomically


class MetricsLog:
    def __init__(self, path: Path | None) -> None:
        self.path = path

    def write(self, line: dict[str, Any]) -> None:
        if self.path is None:
            return
        try:
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}; free some space and use --resume") from error

    def rewind(self, stage: str, segments: int) -> None:
        """Drop what a killed run wrote after its last checkpoint: it is about to happen again."""
        if self.path is None or not self.path.exists():
            return
        lines = [line for line in self.path.read_text().splitlines() if line.endswith("}")]  # the last may be cut off
        kept = [line for line in lines if not _later(json.loads(line), stage, segments)]
        if kept != self.path.read_text().splitlines():
            write_atomically(self.path, "".join(f"{line}\n" for line in kept).encode())


def _later(line: dict[str, Any], stage: str, segments: int) -> bool:
    return line.get("stage") == stage and line.get("segment", 0) > segments
