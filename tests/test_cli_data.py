from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fscil import datasets
from fscil.cli import app
from fscil.errors import UserError

runner = CliRunner()


def test_list_names_every_dataset_with_its_description() -> None:
    found = runner.invoke(app, ["data", "list"])
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert [line.split()[0] for line in lines] == datasets.names()
    assert all(datasets.get(line.split()[0]).description in line for line in lines)


def test_list_as_json() -> None:
    printed = json.loads(runner.invoke(app, ["data", "list", "--json"]).stdout)
    assert printed == {name: datasets.get(name).description for name in datasets.names()}


@pytest.mark.parametrize("name", ["digits", "glyphs"])
def test_embedded_datasets_are_sound_and_need_no_preparation(name: str) -> None:
    verified = runner.invoke(app, ["data", "verify", name])
    assert verified.exit_code == 0
    assert all(line.startswith("ok: ") for line in verified.stdout.splitlines())
    prepared = runner.invoke(app, ["data", "prepare", name])
    assert prepared.exit_code == 0
    assert "nothing to prepare" in prepared.stdout


def test_a_missing_cifar100_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for root in ([], ["--root", str(tmp_path)]):
        monkeypatch.delenv("FSCIL_DATA", raising=False)
        found = runner.invoke(app, ["data", "verify", "cifar100", *root])
        assert isinstance(found.exception, UserError)  # which main() turns into one line and exit code 2
        assert "fscil data prepare cifar100" in str(found.exception)


def test_the_environment_says_where_datasets_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_DATA", str(tmp_path / "from-the-environment"))
    found = runner.invoke(app, ["data", "verify", "cifar100"])
    assert "from-the-environment" in str(found.exception)
    found = runner.invoke(app, ["data", "verify", "cifar100", "--root", str(tmp_path / "named")])
    assert "named" in str(found.exception)
