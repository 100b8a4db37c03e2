"""Methods by name: those of this package, found by their files, and those of other packages."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import example_package
from fscil import methods
from fscil.errors import UserError


def test_unknown_method_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'limmit'.*did you mean 'limit'"):
        methods.get("limmit")


def test_other_packages_add_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = EntryPoint("mine", "fscil.methods.finetune:Finetune", "fscil.methods")

    def points(group: str, name: str = "mine") -> list[EntryPoint]:
        return [mine] if (group, name) == ("fscil.methods", "mine") else []

    monkeypatch.setattr(methods, "entry_points", points)
    assert "mine" in methods.names()
    assert methods.get("mine") is methods.METHODS["finetune"]


def test_a_file_among_the_methods_is_a_method(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No other file names it. The helpers of methods are no methods."""
    (tmp_path / "soft_labels.py").write_text(example_package.files()["rehearsal.py"])
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    found = methods.built_in()
    monkeypatch.delitem(sys.modules, "fscil.methods.soft_labels")
    assert found.keys() - methods.METHODS.keys() == {"soft-labels"}
    assert found["soft-labels"].__name__ == "Rehearsal"
