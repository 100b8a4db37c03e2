"""What users install: the wheel and the sdist hold all that is needed, and the command works from there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import fscil
from fscil import datasets

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


def python(*arguments: str, cwd: Path, **environment: str) -> str:
    """Standard output of a fresh interpreter, which must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("built")
    python("-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed, and nothing else."""
    target = tmp_path_factory.mktemp("installed")
    python("-m", "pip", "install", "--no-deps", "--no-index", "--target", str(target), str(wheel), cwd=target)
    return target


def content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_wheel_carries_code_data_and_licence(wheel: Path) -> None:
    held = content(wheel)
    package = ROOT / "src" / "fscil"
    wanted = [file for file in package.rglob("*") if file.suffix in {".py", ".toml", ".css", ".safetensors"}]
    named = {"paper.toml", "report.css", "limit-paper.toml", "resnet20-cifar100.safetensors"}
    assert named <= {file.name for file in wanted}
    for file in wanted:
        assert held[file.relative_to(package.parent).as_posix()] == file.read_bytes()
    about = f"fscil-{fscil.__version__}.dist-info"
    assert held[f"{about}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert f"\nVersion: {fscil.__version__}\n" in held[f"{about}/METADATA"].decode()
    assert not [name for name in held if not name.startswith(("fscil/", about))]


def test_sdist_carries_what_a_packager_needs(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    top = f"fscil-{fscil.__version__}"
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(f"{top}/") for name in archive.getnames()}
    wanted = {"pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "Makefile"}
    assert wanted | {"src/fscil/paper.toml", "tests/test_package.py", "tests/conftest.py"} <= names
    assert not [name for name in names if name.startswith(("runs/", "carry/", ".venv/", ".ci/"))]


def test_wheel_from_checkout_and_from_sdist_are_the_same(wheel: Path, tmp_path: Path) -> None:
    python("-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(ROOT), cwd=tmp_path)
    (direct,) = tmp_path.glob("*.whl")
    assert direct.name == wheel.name
    assert content(direct) == content(wheel)


def test_installed_package_knows_its_version_and_presets(installed: Path) -> None:
    code = (
        "import fscil; from importlib.metadata import version; from fscil import config, paper; print("
        "fscil.__file__, fscil.__version__, version('fscil'), 'limit-paper' in config.presets(), len(paper.text()))"
    )
    file, *facts = python("-c", code, cwd=installed, PYTHONPATH=str(installed)).split()
    assert Path(file).is_relative_to(installed)
    assert facts[:3] == [fscil.__version__, fscil.__version__, "True"]
    assert int(facts[3]) > 1000


def test_installed_learner_needs_no_network(installed: Path) -> None:
    code = (
        "import numpy, fscil; learner = fscil.Learner('embedded'); "
        "learner.teach('black', numpy.zeros((32, 32, 3), numpy.uint8)); learner.save('model'); "
        "print(fscil.Learner.load('model').classes_)"
    )
    assert python("-c", code, cwd=installed, PYTHONPATH=str(installed)) == "['black']\n"


def test_installed_command_and_module_work(installed: Path) -> None:
    help_text = python("-m", "fscil", "--help", cwd=installed, PYTHONPATH=str(installed))
    assert all(verb in help_text for verb in ("run", "compare", "reproduce", "report", "data"))
    script = str(installed / "bin" / "fscil")
    listed = python(script, "data", "list", cwd=installed, PYTHONPATH=str(installed))
    assert [line.split()[0] for line in listed.splitlines()][: len(datasets.BUILT_IN)] == list(datasets.BUILT_IN)


def test_demo_ends_with_table_model_and_report(installed: Path, tmp_path: Path) -> None:
    """The command of `make demo`, shortened, from the installed package; the second time it reads what it finds."""
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "fscil compare" in line)
    words = line.split(" --out ")[0].split()[1:]
    short = ["epochs=1", "meta_steps=4", "images_per_class=10", "test_images_per_class=2"]
    script = str(installed / "bin" / "fscil")
    environment = {"PYTHONPATH": str(installed), "FSCIL_CACHE": str(tmp_path / "cache")}
    said = python(script, *words, *short, "--out", "runs/demo", cwd=tmp_path, **environment)
    table, _, places = said.partition("\nmodel ")
    assert "limit" in table
    assert "decoupled-cosine" in table
    model, report = re.findall(r"(\S+/model|\S+report\.html)$", places, re.MULTILINE)
    assert (tmp_path / model / "model.safetensors").stat().st_size > 1_000_000
    assert "<html" in (tmp_path / report).read_text(encoding="utf-8")

    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/demo/*/result.json")}
    assert len(before) == words[words.index("--methods") + 1].count(",") + 1
    assert python(script, *words, *short, "--out", "runs/demo", cwd=tmp_path, **environment) == said
    assert before == {path: path.stat().st_mtime_ns for path in before}
