"""fscil methods and fscil encoders."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

from fscil import config, encoders, methods
from fscil.cli import app
from fscil.methods.finetune import Finetune

runner = CliRunner()


def listed(*arguments: str) -> dict[str, str]:
    found = runner.invoke(app, arguments)
    assert found.exit_code == 0, found.output
    return dict(line.split(maxsplit=1) for line in found.stdout.splitlines())


def test_methods_and_presets_with_a_line_each() -> None:
    lines = listed("methods")
    assert set(methods.names()) < set(lines)
    assert lines["decoupled-cosine"] == "Class means and cosine on a fixed encoder: the yardstick"
    assert "as the paper's text has it" in lines["limit-paper"]
    assert lines["limit-paper"].endswith("(preset of limit)")
    assert len(set(lines.values())) == len(lines)


def test_methods_as_json() -> None:
    printed = json.loads(runner.invoke(app, ["methods", "--json"]).stdout)
    assert list(printed) == list(listed("methods"))
    assert printed["limit-paper"] == {"method": "limit", "description": "LIMIT as the paper's text has it"}
    assert printed["limit"]["method"] == "limit"
    for name, each in printed.items():
        assert each["method"] in methods.names()
        assert config.resolve(name, "glyphs").method == each["method"]


def test_a_method_that_cannot_be_imported_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("broken", "elsewhere:Method", "fscil.methods")
    monkeypatch.setattr(methods, "entry_points", lambda group, name="broken": [broken] if name == "broken" else [])
    lines = listed("methods")
    told = "method 'broken' of elsewhere:Method cannot be imported (No module named 'elsewhere')"
    assert lines["broken"].startswith(told)
    assert "decoupled-cosine" in lines


def test_the_docstring_of_the_class_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Finetune, "__doc__", "\n    Goes on training.\n\n    And on.\n")
    assert listed("methods")["finetune"] == "Goes on training"


def test_encoders_with_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"resnet20": "small, for 32 pixels", "vit-small": "large\x1b[31m"}
    monkeypatch.setattr(encoders, "descriptions", lambda: known, raising=False)
    assert listed("encoders") == {"resnet20": "small, for 32 pixels", "vit-small": "large\\x1b[31m"}
    assert json.loads(runner.invoke(app, ["encoders", "--json"]).stdout) == known


@pytest.mark.parametrize("words", [("methods",), ("encoders",), ("data", "list"), ("reproduce",)])
def test_lists_fit_into_80_columns(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {name: encoders.BACKBONES[name] for name in ("resnet20", "resnet18-32", "resnet18")}
    monkeypatch.setattr(encoders, "BACKBONES", ours)  # without those of other tests
    found = runner.invoke(app, words)
    assert found.exit_code == 0, found.output
    assert max(map(len, found.stdout.splitlines())) <= 80
