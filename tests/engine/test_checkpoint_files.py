from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.engine.metrics_log import MetricsLog
from fscil.errors import UserError


def test_tensors_and_facts_come_back(tmp_path: Path) -> None:
    tensors = {
        "a": torch.randn(2, 3, requires_grad=True),
        "whole numbers": torch.tensor(7),
        "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "transposed": torch.randn(3, 2).T,
    }
    save_tensors(tmp_path / "deep" / "x.safetensors", tensors, {"segments_done": 3, "name": "Ωmega"})
    found, about = load_tensors(tmp_path / "deep" / "x.safetensors")
    assert about == {"segments_done": 3, "name": "Ωmega"}
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert all(found[name].dtype == tensors[name].dtype for name in tensors)


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_tensors(tmp_path / "none.safetensors")


def test_lines_are_appended_as_json(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.write({"stage": "a", "segment": 1})
    log.write({"stage": "a", "segment": 2})
    assert [json.loads(line)["segment"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [1, 2]


@pytest.mark.parametrize(
    "cut", ["", '{"stage": "a", "segm', '{"stage": "b", "segment": 3}'], ids=["whole", "cut off", "no line end"]
)
def test_rewinding_drops_what_is_about_to_happen_again(tmp_path: Path, cut: str) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    for stage, segment in (("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2)):
        log.write({"stage": stage, "segment": segment})
    with path.open("a") as file:
        file.write(cut)
    log.rewind("a", 1)
    log.write({"stage": "a", "segment": 2})
    found = [json.loads(line) for line in path.read_text().splitlines()]
    expected = [("a", 1), ("b", 1), ("b", 2), *([("b", 3)] if "b" in cut else []), ("a", 2)]
    assert [(line["stage"], line["segment"]) for line in found] == expected


def test_without_a_path_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = MetricsLog(None)
    log.write({"stage": "a"})
    log.rewind("a", 0)
    assert not list(tmp_path.iterdir())


def test_rewinding_before_the_first_line_is_fine(tmp_path: Path) -> None:
    MetricsLog(tmp_path / "metrics.jsonl").rewind("a", 0)
    assert not (tmp_path / "metrics.jsonl").exists()
