"""What the documents promise: their commands parse, their examples run, their tables match the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from fscil.cli import app
from fscil.comparison import rows_of
from fscil.config import resolve, toml_value

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "results/README.md")]
DOCUMENTS = [*PAGES, *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    lines = [line for document in DOCUMENTS for block in blocks(document, "sh") for line in block.splitlines()]
    lines = [re.sub(r"^(\w+=\S+ )?torchrun .* -m fscil ", "fscil ", line) for line in lines]
    return [line.partition(" #")[0].strip() for line in lines if line.startswith("fscil ")]


@pytest.mark.parametrize("command", commands())
def test_commands_of_the_documents_parse(command: str) -> None:
    """Down to the settings; nothing is run."""
    words = shlex.split(command)[1:]
    group: Any = typer.main.get_command(app)
    with group.make_context("fscil", list(words)) as context:
        name, verb, rest = group.resolve_command(context, words)
        if hasattr(verb, "resolve_command"):
            with verb.make_context(name, list(rest)) as inner:
                name, verb, rest = verb.resolve_command(inner, rest)
        given = verb.make_context(name, list(rest)).params
    overrides, benchmark = given.get("overrides") or [], given.get("benchmark")
    if name == "run" and benchmark:
        resolve(given["method"], benchmark, overrides)
    if name == "compare":
        for row in rows_of(benchmark, given["methods"].split(","), overrides):
            resolve(row.preset, benchmark, row.settings)


def test_table_of_departures_is_what_the_presets_say() -> None:
    configs = [resolve(preset, "cifar100") for preset in ("limit-paper", "limit", "limit-plus", "limit-released")]
    presets = [{**config.settings, **config.run} for config in configs]
    values = {key: tuple(toml_value(preset[key]).strip('"') or "none" for preset in presets) for key in presets[0]}
    text = (ROOT / "docs" / "settings.md").read_text()
    rows = re.findall(r"^\| `(\w+)`" + r" \| (\S+)" * len(presets) + r" \| .+ \|$", text, re.MULTILINE)
    listed = {key: tuple(shown) for key, *shown in rows}
    assert listed == {key: its for key, its in values.items() if len(set(its)) > 1}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []
