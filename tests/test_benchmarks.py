"""make bench: one table, one JSON file, and figures that are the ratio of what was measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks import closed_form, learner, sampling
from benchmarks.figures import Figure


def some() -> Iterator[Figure]:
    yield Figure("ours over theirs", 2.0, "times faster", {"ours, ms": 1.0, "theirs, ms": 2.0})


def failing() -> Iterator[Figure]:
    yield from some()
    raise RuntimeError("no such device")


def test_what_was_measured_is_written_also_when_a_later_part_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "PARTS", {"good": some, "bad": failing})
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--out", str(tmp_path / "bench.json")])
    with pytest.raises(RuntimeError):
        bench.main()
    assert "ours over theirs: 2 times faster" in capsys.readouterr().out
    found = json.loads((tmp_path / "bench.json").read_text())
    assert [figure["ratio"] for figure in found["figures"]] == [2.0]
    assert found["hardware"]["cpu"]
    assert found["versions"]["torch"]


def test_the_closed_form_is_measured_against_what_it_replaces() -> None:
    figures = {figure.name: figure for figure in closed_form.head(20, 16, seconds=0.01)}
    attention = figures["closed form over attention, C = 20, d = 16"]
    measured = attention.measured
    assert attention.ratio == pytest.approx(measured["attention, ms"] / measured["calibrated, ms"])
    memory = figures["memory of attention, C = 20, d = 16"].measured
    assert memory["attention, MiB"] > 512 * 20 * 16 * 4 / 2**20  # at least one tensor of all queries and classes


def test_the_learner_is_measured_beside_the_encoder_and_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = {"teach": 12.0, "encode_five": 10.0, "decode_five": 4.0, "predict": 3.0, "encode_one": 2.0}

    def once(seconds: float, by: object = min, **functions: Callable[[], object]) -> dict[str, float]:
        for function in functions.values():
            function()
        return {name: ticks.get(name, 1.0) for name in functions}

    monkeypatch.setattr(learner, "in_turns", once)
    taught, predicted = learner.beside_the_encoder("embedded")
    assert (taught.name, taught.ratio) == ("teach five photos, embedded", 1.2)
    assert taught.measured["share of the total with decoding, %"] == 75
    assert (predicted.ratio, predicted.measured["decoding, ms"]) == (1.5, 1)
    (many,) = learner.with_classes(20, 64)
    assert many.measured["the model folder, MB"] > many.measured["classes.safetensors, MB"] > 0.01


def test_both_samplers_are_measured_by_task_and_by_item(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "OF_CLASS", 40)
    monkeypatch.setattr(sampling, "STEPS", 1)
    figures = [figure for figure in sampling.measure(repeat=1) if "cpu" in figure.name]
    assert len(figures) == 8
    for figure in figures:
        fit, pil = figure.measured.values()
        assert figure.ratio == pytest.approx(fit / pil)
    assert list(figures[1].measured) == ["FIT, us an item of 696", "PIL, us an item of 480"]
