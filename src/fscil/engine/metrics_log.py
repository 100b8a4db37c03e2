"""metrics.jsonl: a line per segment and per session, written as it happens."""

from __future__ import annotations

import json
from collections.abc import Callable
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
        """Drop what a killed run wrote after its last checkpoint, since that will be repeated."""
        self.drop(lambda line: line.get("stage") == stage and line.get("segment", 0) > segments)

    def drop(self, unwanted: Callable[[dict[str, Any]], bool]) -> None:
        """Drop the lines that match, and one that was cut off when the run was killed."""
        if self.path is None or not self.path.exists():
            return
        before = self.path.read_text()
        kept = [line for line in before.splitlines() if _is_whole(line) and not unwanted(json.loads(line))]
        after = "".join(f"{line}\n" for line in kept)
        if after != before:
            write_atomically(self.path, after.encode())


def _is_whole(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
