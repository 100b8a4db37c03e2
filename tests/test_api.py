"""What Python programs call."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    assert result.folder == str(tmp_path / "run") == fscil.read_result(tmp_path / "run").folder
    assert "folder" not in (tmp_path / "run" / "result.json").read_text().split('"method"')[0]
    assert len(fscil.load(result.folder).class_names) == 7
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


def test_seeds_may_be_a_number_and_methods_a_list_in_words(tiny_dataset: str, tmp_path: Path) -> None:
    results = fscil.compare(tiny_dataset, "finetune,decoupled-cosine", seeds=1, out=tmp_path, device="cpu")
    assert [(result.preset, result.seed) for result in results] == [("finetune", 1), ("decoupled-cosine", 1)]


def test_data_that_changed_is_read_again(photo_folder: Callable[..., Path], tmp_path: Path) -> None:
    photos = photo_folder(classes=4, images=5, size=16)
    settings = {"path": photos, "size": 16, "base_classes": 3, "way": 1, "shot": 1, "steps": 1, "device": "cpu"}
    first = fscil.run("decoupled-cosine", "folder", out=tmp_path / "a", **settings)
    for label in range(4):
        for i in range(5):
            photo = photos / f"class{label}" / f"{i}.{('jpg', 'png')[i % 2]}"
            photo.with_name(f"more-{photo.name}").write_bytes(photo.read_bytes())
    second = fscil.run("decoupled-cosine", "folder", out=tmp_path / "b", **settings)
    assert sum(map(sum, second.confusion)) == 2 * sum(map(sum, first.confusion))


@pytest.mark.parametrize("seed", [-1, 1.5, "3", True])
def test_a_seed_is_a_whole_number(tiny_dataset: str, tmp_path: Path, seed: Any) -> None:
    with pytest.raises(UserError, match="is not a whole number from 0 to"):
        fscil.run("limit", tiny_dataset, out=tmp_path / "run", device="cpu", seed=seed)


def test_a_setting_that_nobody_knows_is_refused(tiny_dataset: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'epochs'"):
        fscil.run("limit", tiny_dataset, out=tmp_path / "run", device="cpu", epoch=2)
    assert not (tmp_path / "run").exists()
