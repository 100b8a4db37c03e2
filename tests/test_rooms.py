"""The rooms import each other as CONTRIBUTING.md shows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fscil

PACKAGE = Path(fscil.__file__).parent
CONTRIBUTING = PACKAGE.parents[1] / "CONTRIBUTING.md"


def drawn() -> dict[str, int]:
    """Every room and its line."""
    block = re.search(r"^```layers\n(.*?)^```$", CONTRIBUTING.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert block is not None
    return {room: number for number, line in enumerate(block[1].splitlines()) for room in line.split()}


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(file: Path) -> Iterator[str]:
    """Rooms of this package that a file imports, in functions too, but not for type checkers alone."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for_types = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    left_out = {id(node) for block in for_types for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fscil":
            _, _, rest = (node.module or "").partition(".")
            yield from [rest.partition(".")[0]] if rest else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from [alias.name.split(".")[1] for alias in node.names if alias.name.startswith("fscil.")]


def test_every_room_is_drawn() -> None:
    rooms = {room_of(file) for file in PACKAGE.rglob("*.py")} - {"__init__", "__main__", "presets"}
    assert rooms == set(drawn())


def test_rooms_import_from_their_own_line_and_those_above() -> None:
    lines = drawn()
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {other}"
        for file in PACKAGE.rglob("*.py")
        if room_of(file) in lines
        for other in imported_rooms(file)
        if lines.get(other, 0) > lines[room_of(file)]
    ]
    assert wrong == []


def test_results_tables_and_reports_need_no_torch() -> None:
    code = "import sys, fscil.results, fscil.tables, fscil.report.html; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
