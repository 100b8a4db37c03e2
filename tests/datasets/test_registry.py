from __future__ import annotations

from dataclasses import fields, is_dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fscil import datasets
from fscil.datasets import Dataset, data_root
from fscil.errors import UserError

NAMES = [
    "glyphs", "digits", "cifar100", "miniimagenet", "cub200", "imagenet100", "imagenet1000", "omniglot", "folder",
]  # fmt: skip


def test_all_are_there_with_complete_options() -> None:
    assert datasets.names()[: len(NAMES)] == NAMES
    for name in NAMES:
        dataset = datasets.get(name)
        assert dataset.name == name
        assert "\n" not in dataset.description
        assert is_dataclass(dataset.options)
        assert {field.name: field.default for field in fields(dataset.options)}["trial"] == 1
        assert dataset.options() == dataset.options()  # every option has a default


def test_unknown_name_says_the_nearest_or_where_all_are_listed() -> None:
    with pytest.raises(UserError, match=r"'CIFAR10'.*did you mean 'cifar100'"):
        datasets.get("CIFAR10")
    with pytest.raises(UserError, match="'zzz': `fscil data list` lists them"):
        datasets.get("zzz")


def _plug_in(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    monkeypatch.setattr(datasets, "entry_points", lambda group: [p for p in points if p.group == group])


def test_other_packages_add_datasets_but_take_over_none(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = EntryPoint("mine", "fscil.datasets.digits:DATASET", "fscil.datasets")
    taken = EntryPoint("glyphs", "fscil.datasets.digits:DATASET", "fscil.datasets")
    _plug_in(monkeypatch, mine, taken)
    assert datasets.names() == [*NAMES, "mine"]
    assert isinstance(datasets.get("mine"), Dataset)
    assert datasets.get("glyphs").name == "glyphs"


@pytest.mark.parametrize("value", ["no_such_package_at_all:DATASET", "fscil.datasets.digits:SIZE"])
def test_a_broken_plug_in_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    _plug_in(monkeypatch, EntryPoint("broken", value, "fscil.datasets"))
    assert "broken" in datasets.names()  # listing does not import it
    with pytest.raises(UserError, match=f"broken.*{value}"):
        datasets.get("broken")


def test_data_root_prefers_the_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FSCIL_DATA", str(tmp_path))
    assert data_root(None) == tmp_path
    assert data_root(tmp_path / "other") == tmp_path / "other"
    monkeypatch.setenv("FSCIL_DATA", "")
    assert data_root(None) is None
    monkeypatch.delenv("FSCIL_DATA")
    assert data_root(None) is None


def test_folder_encoder_follows_the_size() -> None:
    folder = datasets.get("folder")
    assert folder.defaults_for(folder.options(size=84))["encoder"] == "resnet18"
    assert folder.defaults_for(folder.options(size=32))["encoder"] == "resnet20"
    cifar = datasets.get("cifar100")
    assert cifar.defaults_for(cifar.options()) == dict(cifar.defaults)
