"""metrics.jsonl: a line per segment and per session, written as it happens."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fscil.errors import UserError
from fscil.files import check_regular, read_regular, write_atomically

LARGEST_FILE = 2**31  # bytes; the longest training that is allowed writes less
REMEDY = "remove it, since only the numbers in it are lost, and use --resume"


class MetricsLog:
    def __init__(self, path: Path | None) -> None:
        self.path = path

    def write(self, line: dict[str, Any]) -> None:
        if self.path is None:
            return
        try:
            if os.path.lexists(self.path):
                check_regular(self.path)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}; free some space and use --resume") from error

    def rewind(self, stage: str, segments: int) -> None:
        """Drop what a killed run wrote after its last checkpoint, since that will be repeated."""
        self.drop(lambda line: line["stage"] == stage and line["segment"] > segments)

    def drop(self, unwanted: Callable[[dict[str, Any]], bool]) -> None:
        """Drop the lines that match, and those that are not ours, such as one that was cut off by a kill."""
        if self.path is None or not os.path.lexists(self.path):
            return
        try:
            before = read_regular(self.path, LARGEST_FILE)
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}; {REMEDY}") from error
        lines = ((text, parse_line(text)) for text in before.split(b"\n"))
        after = b"".join(text + b"\n" for text, line in lines if line is not None and not unwanted(line))
        if after != before:
            write_atomically(self.path, after)


def parse_line(text: bytes) -> dict[str, Any] | None:
    """A line that says at least its stage and its segment; None for anything else."""
    try:
        line = json.loads(text.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not isinstance(line.get("scope", ""), str):
        return None
    return line if isinstance(line.get("stage"), str) and type(line.get("segment")) is int else None
