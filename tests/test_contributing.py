"""CONTRIBUTING's package: it installs as printed, passes the type checker, and its method keeps what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import example_package as example


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return example.write(tmp_path_factory.mktemp("example") / "package")


@pytest.fixture(scope="module")
def python(package: Path) -> Path:
    return example.install(package, package.parent / "environment")


def test_the_method_is_short() -> None:
    assert len(example.files()["rehearsal.py"].splitlines()) <= 60


def test_it_passes_the_type_checker(package: Path) -> None:
    modules = [str(package / name) for name in example.files() if name.endswith(".py")]
    config = str(example.ROOT / "pyproject.toml")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", config, *modules],
        cwd=example.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_it_runs_where_it_is_installed(python: Path, tmp_path: Path) -> None:
    """Trains, keeps exemplars, reports like a built-in method, and its model is loaded in another process."""
    words = ["epochs=2" if word.startswith("epochs=") else word for word in example.command()]
    fscil = [str(python.parent / "python"), "-m", "fscil"]
    arguments = [*words, "session_epochs=2", "trials=1", "base_margin=0.3", "--out", "run"]
    done = subprocess.run([*fscil, *arguments], env=example.settings(), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rehearsal" in done.stdout
    settings = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["settings"]
    assert (settings["encoder"], settings["memory"], settings["flip"]) == ("tiny", "3/class", False)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["memory"], result["exemplars"]) == ("3/class", 3 * 10)
    assert (result["margin"], len(result["curve"]) > 2) == (0.3, True)
    assert result["trials"][0]["accuracy"] == result["accuracy"]  # the first draw is the standard one: memory restored

    check = (
        "import fscil, torch; from fscil import datasets; from safetensors.torch import load_file\n"
        "stripes = datasets.get('stripes'); benchmark = stripes.load(stripes.options(), None)\n"
        "kept = load_file('run/predictions.safetensors'); model = fscil.load('run/model')\n"
        "names = [benchmark.class_names[label] for label in kept['predictions'][-1]]\n"
        "assert model.predict(benchmark.test_images) == names"
    )
    done = subprocess.run(
        [str(python), "-c", check], env=example.settings(), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
