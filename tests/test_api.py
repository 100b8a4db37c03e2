"""What Python programs call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fscil
from fscil.errors import UserError


def test_the_package_is_there_at_once() -> None:
    """Importing it imports nothing heavy, and its names are listed."""
    code = "import fscil, sys; print(sorted({'torch', 'numpy', 'rich'} & set(sys.modules)), 'load' in dir(fscil))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "True"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fscil.nothing  # noqa: B018


def test_run_gives_a_result_and_reads_a_finished_run(tiny_dataset: str, tmp_path: Path) -> None:
    result = fscil.run("decoupled-cosine", tiny_dataset, seed=3, out=tmp_path / "run", device="cpu", epochs=2)
    assert isinstance(result, fscil.Result)
    assert (result.seed, result.changed) == (3, ["epochs=2"])
    assert result.command == "fscil run decoupled-cosine tiny epochs=2 --seed 3"
    assert fscil.read_result(tmp_path / "run") == result
    assert fscil.run("decoupled-cosine", tiny_dataset, seed=3, out=tmp_path / "run", device="cpu", epochs=2) == result
    with pytest.raises(UserError, match="holds a run with other settings"):
        fscil.run("decoupled-cosine", tiny_dataset, out=tmp_path / "run", device="cpu")


def test_run_finds_a_folder_of_its_own(tiny_dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fscil.run("decoupled-cosine", tiny_dataset, device="cpu")
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("decoupled-cosine-tiny-seed1-")
    assert fscil.load(folder, device="cpu").class_names == [f"colour {i}" for i in range(7)]


def test_compare_gives_all_results(tiny_dataset: str, tmp_path: Path) -> None:
    results = fscil.compare(
        tiny_dataset, ["limit", "decoupled-cosine"], seeds=[1, 2], out=tmp_path, device="cpu", meta_steps=2
    )
    assert [(result.preset, result.seed) for result in results] == [
        ("limit", 1), ("limit", 2), ("decoupled-cosine", 1), ("decoupled-cosine", 2)
    ]  # fmt: skip
    assert (tmp_path / "report.html").is_file()


def test_a_setting_that_nobody_knows_is_refused(tiny_dataset: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'epochs'"):
        fscil.run("limit", tiny_dataset, out=tmp_path / "run", device="cpu", epoch=2)
    assert not (tmp_path / "run").exists()
