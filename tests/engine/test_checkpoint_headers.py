"""Checkpoint files of any content: a UserError or what was saved, nothing else."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.errors import UserError

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FACTS = st.dictionaries(st.text(), ANYTHING, max_size=4)
ANY_EXAMPLES = settings(
    deadline=None, max_examples=150, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def same(one: Any, other: Any) -> bool:
    """Equal, with nan equal to itself."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return one == other


@ANY_EXAMPLES
@given(about=FACTS.filter(lambda facts: "checksum" not in facts))
def test_facts_of_any_kind_come_back(about: dict[str, Any], tmp_path: Path) -> None:
    tensors = {"a": torch.arange(3.0), "b": torch.zeros(0, 2), "c": torch.tensor(True)}
    save_tensors(tmp_path / "file", tensors, about)
    found, facts = load_tensors(tmp_path / "file")
    assert same(facts, about)
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


@ANY_EXAMPLES
@given(header=ANYTHING | FACTS.map(lambda facts: {**facts, "checksum": "0" * 64}), plain=st.booleans(), text=st.text())
def test_headers_that_we_did_not_sign_are_refused(header: Any, plain: bool, text: str, tmp_path: Path) -> None:
    about = json.dumps(header) if plain else text.encode("utf-8", "replace").decode()
    (tmp_path / "file").write_bytes(safetensors.torch.save({"a": torch.zeros(2)}, {"about": about}))
    with pytest.raises(UserError, match="cannot be read") as caught:
        load_tensors(tmp_path / "file")
    assert "\n" not in str(caught.value)


@ANY_EXAMPLES
@given(place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_any_byte_that_changes_is_noticed(place: int, byte: int, tmp_path: Path) -> None:
    save_tensors(tmp_path / "file", {"a": torch.arange(50.0)}, {"run": "this", "segments_done": 3})
    whole = bytearray((tmp_path / "file").read_bytes())
    place %= len(whole)
    if whole[place] == byte:
        return
    whole[place] = byte
    (tmp_path / "file").write_bytes(whole)
    try:
        tensors, about = load_tensors(tmp_path / "file")
    except UserError:
        return
    # blanks between tokens of the header may change without changing what it says
    assert torch.equal(tensors["a"], torch.arange(50.0))
    assert about == {"run": "this", "segments_done": 3}
