"""config.toml and metrics.jsonl of any content: one line that says what is wrong, or a run that can go on."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from damage import JSON, QUICK, damaged, refused
from fscil.config import read_config, resolve, to_toml, toml_value
from fscil.engine.metrics_log import MetricsLog
from fscil.errors import UserError
from fscil.results import read_result


@given(st.binary(max_size=50))
@QUICK
def test_any_bytes_in_place_of_a_document(tmp_path: Path, data: bytes) -> None:
    for name, read in {"result.json": read_result, "config.toml": read_config}.items():
        (tmp_path / name).write_bytes(data)
        assert refused(lambda read=read, name=name: read(tmp_path / name))  # type: ignore[misc]


def put_nothing(path: Path) -> None:
    pass


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path), put_nothing])
@pytest.mark.parametrize("read", [read_result, read_config])
def test_what_is_not_a_file_is_not_waited_for(
    tmp_path: Path, put: Callable[[Path], None], read: Callable[[Path], Any]
) -> None:
    put(tmp_path / "document")
    with pytest.raises(UserError, match=r"cannot read .*name a run folder"):
        read(tmp_path / "document")


TOML_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TOML = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(),
        st.floats(),
        TOML_TEXT,
        st.dates(),
        st.sampled_from([10**4000, 1e308, "", "0", 1e3]),
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TOML_TEXT, inner, max_size=2),
)


def as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_value(str(key))} = {as_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, str):
        return toml_value(value)
    if isinstance(value, bool):
        return str(value).lower()
    return hex(value) if isinstance(value, int) and value > 2**64 else str(value)


@given(data=st.data())
@QUICK
def test_any_damage_to_a_configuration_is_refused_or_leaves_one(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "config.toml"
    whole = tomllib.loads(to_toml(resolve("limit", "folder", ["epochs=3"])))
    changed = data.draw(damaged(whole, TOML))
    path.write_text("\n".join(f"{toml_value(str(key))} = {as_toml(value)}" for key, value in changed.items()))
    if refused(lambda: read_config(path)):
        return
    config = read_config(path)
    assert config.hash
    assert config.command
    path.write_bytes(to_toml(config).encode())
    assert read_config(path) == config


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\nseed = 1", "\nseed = 0x" + "f" * 5000),
        ("\nseed = 1", "\nseed = " + "9" * 5000),
        ("\nseed = 1", "\nseed = true"),
        ("epochs = 3", "epochs = 0x" + "f" * 5000),
        ("epochs = 3", "epochs = [3]"),
        ("epochs = 3", "epochs = {a = 3}"),
        ("epochs = 3", "epochs = 1e308"),
        ("epochs = 3", "epochs = nan"),
        ("epochs = 3", "epochs = -inf"),
        ('path = ""', "path = " + "[" * 5000),
        ('path = ""', 'path = ["photos"]'),
        ('path = ""', 'path = "\\u0000"'),
        ('path = ""', 'path = "\\ud800"'),
        ("[options]", "[[options]]"),
        ("[run]", "[walk]"),
    ],
    ids=lambda text: text[:20],
)
def test_odd_values_in_a_configuration_are_refused(tmp_path: Path, old: str, new: str) -> None:
    text = to_toml(resolve("limit", "folder", ["epochs=3"]))
    assert text.count(old) == 1
    (tmp_path / "config.toml").write_text(text.replace(old, new))
    assert refused(lambda: read_config(tmp_path / "config.toml"))


OURS = {"stage": "a", "segment": 1, "scope": ""}
LINES = st.one_of(
    st.binary(max_size=20),
    JSON.map(lambda value: json.dumps(value).encode()),
    damaged(dict(OURS), JSON).map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b"\0", b"\xff", b"[" * 5000, b"9" * 5000, b'{"stage": "a", "segment": 1, "scope": []}']),
)


@given(st.lists(LINES, max_size=4), st.booleans())
@QUICK
def test_metrics_of_any_content_keep_the_lines_that_are_ours(tmp_path: Path, foreign: list[bytes], cut: bool) -> None:
    path = tmp_path / "metrics.jsonl"
    own = [json.dumps({**OURS, "segment": segment}).encode() for segment in (1, 2, 9)]
    path.write_bytes(b"\n".join([own[0], *foreign, own[1], own[2]]) + (b"" if cut else b"\n"))
    log = MetricsLog(path)
    log.rewind("a", 2)
    log.drop(lambda line: line.get("scope") in {"trial-1"} and line["segment"] < 2)
    log.write({**OURS, "segment": 3})
    kept = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    assert [line["segment"] for line in (kept[0], *kept[-2:])] == [1, 2, 3]


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_metrics_that_are_not_a_file_are_refused(tmp_path: Path, put: Callable[[Path], None]) -> None:
    put(tmp_path / "metrics.jsonl")
    log = MetricsLog(tmp_path / "metrics.jsonl")
    with pytest.raises(UserError, match=r"cannot read .*metrics.jsonl: .*remove it"):
        log.rewind("a", 0)
    with pytest.raises(UserError, match=r"cannot write .*metrics.jsonl"):
        log.write({"stage": "a"})
