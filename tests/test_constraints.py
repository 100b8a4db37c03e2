"""constraints.txt names a tested version of everything that pyproject.toml asks for."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ASKED_FOR = [
    *PROJECT["project"]["dependencies"],
    *(asked for extra in PROJECT["project"]["optional-dependencies"].values() for asked in extra),
    *PROJECT["build-system"]["requires"],
]


def versions() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


@pytest.mark.parametrize("asked", ASKED_FOR)
def test_every_dependency_has_a_tested_version(asked: str) -> None:
    requirement = Requirement(asked)
    assert requirement.specifier.contains(versions()[canonicalize_name(requirement.name)])


@pytest.mark.parametrize(
    ("name", "last_with_a_hole"),
    [
        ("pillow", "12.1.0"),  # CVE-2026-25990; before it CVE-2025-48379 and CVE-2024-28219
        ("filelock", "3.20.2"),  # CVE-2026-22701; before it CVE-2025-68146
        ("scikit-learn", "1.4.2"),  # CVE-2024-5206
        ("torch", "2.9.1"),  # CVE-2026-24747; before it CVE-2025-32434
    ],
)
def test_floors_stand_above_known_holes(name: str, last_with_a_hole: str) -> None:
    floors = {Requirement(asked).name: Requirement(asked).specifier for asked in ASKED_FOR}
    assert not floors[name].contains(last_with_a_hole)
