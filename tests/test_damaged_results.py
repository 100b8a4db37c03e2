"""A result.json of any content: one line that says what is wrong, or a result that can be shown."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from damage import JSON, QUICK, damaged, refused
from fscil import results
from fscil.errors import UserError
from fscil.report.curve import write_curve
from fscil.report.html import write_report
from fscil.results import Result, read_result, write_result
from fscil.tables import markdown_table, session_table

MakeResult = Callable[..., Result]


def show(found: list[Result], folder: Path) -> None:
    """Everything that is made of results."""
    Console(file=io.StringIO(), width=80).print(session_table(found), crop=False)
    markdown_table(found)
    json.dumps([vars(each) for each in found])
    write_report(found, folder / "report.html")
    write_curve(found, folder / "curve.png")


@given(data=st.data())
@QUICK
def test_any_damage_to_a_result_is_refused_or_leaves_a_result(
    tmp_path: Path, make_result: MakeResult, data: st.DataObject
) -> None:
    path = tmp_path / "result.json"
    write_result(make_result((3, 1), margin=data.draw(st.sampled_from([0.0, 0.4]))), path)
    path.write_text(json.dumps(data.draw(damaged(json.loads(path.read_text()), JSON))))
    if refused(lambda: read_result(path)):
        return
    result = read_result(path)
    write_result(result, path)
    assert read_result(path) == result
    Console(file=io.StringIO(), width=80).print(session_table([result, replace(result, seed=99)]), crop=False)
    markdown_table([result, make_result()])


TEXT = "method preset benchmark title augmentation memory weights note config_hash command device split_checksum"


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        dict.fromkeys(TEXT.split(), "\ud800"),
        dict.fromkeys(TEXT.split(), "caf\udce9\0\n<b>$x$" * 50),
        {"class_names": ["\ud800"] * 10, "warnings": ["\udfff"], "changed": ["\ud800=\ud800"]},
        {"margin": 0.4, "margin_zero": None},
        {"margin": -1e12, "seed": 2**63 - 1, "trial": 2**63 - 1},
        {"confusion": [[0] * 10] * 10},
        {"confusion": [[10**12] * 10] * 10},
        {"seconds": {"": {"seconds": 1e12, "cached": True}, "\ud800": {"seconds": 0, "cached": False}}},
        {"versions": {}, "seconds": {}, "curve": []},
        {"curve": [[-0.0, 100, 0.0]]},
        {"base": None, "new": None, "harmonic_mean": None, "area": None},
        {"accuracy": [100.0, 0, 0.0], "forgetting": [0, -100, 100]},
    ],
    ids=lambda values: " ".join(values)[:30],
)
def test_whatever_is_read_can_be_reported(tmp_path: Path, make_result: MakeResult, values: dict[str, Any]) -> None:
    write_result(replace(make_result(), **values), tmp_path / "result.json")
    result = read_result(tmp_path)
    show([make_result(method="decoupled-cosine"), result, replace(result, seed=3)], tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("last", 1e14),
        ("last", -1.0),
        ("accuracy", [1.0, 2.0, 100.1]),
        ("forgetting", [0.0, 0.0, 101.0]),
        ("seed", -1),
        ("seed", 2**63),
        ("exemplars", -5),
        ("parameters", {"inference": -1, "training_only": 0}),
        ("classes_per_session", [10, 0, 0]),
        ("confusion", [[2**63] * 10] * 10),
        ("margin", 1e300),
        ("seconds", {"read": {"seconds": -1.0, "cached": False}}),
        ("base_among_base", None),
        ("curve", [[0.0, 101.0, 5.0]]),
    ],
)
def test_impossible_numbers_are_refused(tmp_path: Path, make_result: MakeResult, field: str, value: Any) -> None:
    write_result(replace(make_result(), **{field: value}), tmp_path / "result.json")
    with pytest.raises(UserError, match="malformed value for"):
        read_result(tmp_path)


@pytest.mark.parametrize(
    "text",
    ['{"version": 1e999}', '{"last": -1e999}', f'{{"version": {"9" * 5000}}}', '{"version": [[]]}', '{"version": {}}',
     '{"version": true}', '{"version": 3.0}', f'{{"version": "{"x" * 5000}"}}', '"\\ud800"', "\ufeff{}", "{" * 5000],
    ids=lambda text: ascii(text[:20]),
)  # fmt: skip
def test_a_document_of_odd_values_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "result.json").write_text(text, encoding="utf-8")
    assert refused(lambda: read_result(tmp_path))


def test_a_file_too_large_to_be_a_document_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "LARGEST_FILE", 10)
    (tmp_path / "result.json").write_text(" " * 11)
    with pytest.raises(UserError, match="larger than 10 bytes"):
        read_result(tmp_path)
