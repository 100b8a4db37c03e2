"""Hundreds of bad inputs: each ends with one clear line and exit code 2, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from attack import Attempt, fscil
from bad_inputs import Case, all_cases
from PIL import Image

from cli_process import assert_one_clear_line

pytestmark = pytest.mark.slow

CASES = all_cases()


def test_there_are_enough_of_them() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names)) >= 300


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an interrupted run, a finished one, its model, and photos."""
    folder = tmp_path_factory.mktemp("furnished") / "work"
    folder.mkdir()
    run = ("run", "decoupled-cosine", "digits", "epochs=1", "--checkpoint-every", "0", "--out")
    assert fscil(*run, "finished", folder=folder).code == 0
    assert fscil(*run, "interrupted", folder=folder, die_in_write=3).code == -9
    assert (folder / "interrupted" / "checkpoint" / "base.safetensors").exists()
    shutil.copytree(folder / "finished" / "model", folder / "model")
    for label in range(4):
        (folder / "photos" / f"class{label}").mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (20, 20), (60 * label, 40 * number, 0)).save(folder / f"photos/class{label}/{number}.png")
    return folder


def look(folder: Path) -> dict[str, object]:
    """Every file: its kind, and its bytes if it is an ordinary one; but not what a killed run left, to be cleared."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        if path.name.startswith("."):
            continue
        status = path.lstat()
        found[str(path.relative_to(folder))] = path.read_bytes() if stat.S_ISREG(status.st_mode) else status.st_mode
    return found


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_refused_in_one_line(case: Case, furnished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    shutil.copytree(furnished, folder)
    case.prepare(folder)
    before = look(folder)
    elsewhere = {name: str(tmp_path / name) for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR")}
    done = Attempt(case.arguments, folder, {**elsewhere, **case.environment}).wait()
    assert "Traceback" not in done.err
    assert done.code == 2, done.err or done.out
    lines = done.err.splitlines(keepends=True)
    assert_one_clear_line(lines[-1])
    assert len(lines[-1]) < 1500
    if "--resume" not in case.arguments and "compare" not in case.arguments:  # these tell what they are about to do
        assert len(lines) == 1
    assert look(folder) == before
    assert not any(os.path.lexists(path) for path in elsewhere.values())  # neither there nor anywhere outside
    assert not (folder / "executed").exists()


def test_nothing_else_was_touched(furnished: Path) -> None:
    """Whatever the cases did, the templates that they were copied from and the folder above are as they were."""
    assert sorted(os.listdir(furnished)) == ["finished", "interrupted", "model", "photos"]
