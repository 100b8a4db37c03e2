"""The package that CONTRIBUTING.md prints, written to disk and installed as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", CONTRIBUTING, re.DOTALL | re.MULTILINE)


def files() -> dict[str, str]:
    """Its Python files by name, and its pyproject.toml."""
    (toml,) = blocks("toml")
    modules = {source.splitlines()[0].removeprefix("# "): source for source in blocks("python")}
    return {**modules, "pyproject.toml": toml}


def command() -> list[str]:
    """The words behind `fscil`."""
    (text,) = blocks("text")
    return text.split()[1:]


def write(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, text in files().items():
        (folder / name).write_text(text)
    return folder


def install(package: Path, environment: Path) -> Path:
    """A fresh virtual environment with the package in it; returns its Python.

    It sees the packages of this one, fscil and the build tools included, so that nothing is downloaded.
    """
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    (site,) = environment.glob("lib/python*/site-packages")
    seen = [str(ROOT / "src"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    (site / "seen.pth").write_text("\n".join(dict.fromkeys(seen)) + "\n")
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*install, str(package)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return python


def settings() -> dict[str, str]:
    environment = {**os.environ, "FSCIL_CACHE": "off", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("PYTHONPATH", None)
    return environment
