"""Runs that are interrupted, resumed, finished or refused: numbers and folders."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from fscil import methods, runs
from fscil.config import resolve
from fscil.engine.checkpoint import load_tensors
from fscil.errors import UserError
from fscil.results import read_result
from run_helpers import QUIET, PowerCut, PowerCutError, Start, every_method, lines, where

pytestmark = pytest.mark.usefixtures("undrawn")


def test_left_over_checkpoints_are_not_taken_for_those_of_a_new_run(
    start: Start, tmp_path: Path, power_cut: PowerCut
) -> None:
    with power_cut(lines=3), pytest.raises(PowerCutError):
        start("limit", "epochs=2")
    for file in ("config.toml", "metrics.jsonl"):
        (tmp_path / "run" / file).unlink()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["checkpoint"]
    with pytest.raises(UserError, match=r"holds checkpoint of a run without its config.toml; delete it, or choose"):
        start("limit")


@pytest.mark.parametrize("name", every_method())
def test_a_finished_run_leaves_no_checkpoint(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Even if it was killed between writing its result and the end."""
    start(name, "trials=1")
    assert not (tmp_path / "run" / "checkpoint").exists()
    with monkeypatch.context() as patch:
        patch.setattr(runs, "drop_checkpoints", lambda _: None)
        start(name, "trials=1", folder="killed")
    assert (tmp_path / "killed" / "checkpoint" / "base.safetensors").exists()
    runs.resume(where(tmp_path / "killed"), QUIET)
    assert not (tmp_path / "killed" / "checkpoint").exists()


def test_sessions_count_the_time_before_an_interruption(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a checkpoint of sessions has it. A clock that ticks whenever it is read takes the place of time."""
    protocol, ticks = runs.run_protocol, itertools.count()

    def resumed(method: methods.Method, *rest: object) -> object:
        method.engine.seconds["sessions"] = {"seconds": 100.0, "cached": False}
        return protocol(method, *rest)

    monkeypatch.setattr(runs, "run_protocol", resumed)
    monkeypatch.setattr(runs, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    monkeypatch.setattr(runs, "drop_checkpoints", lambda _: None)
    in_all = start("decoupled-cosine").seconds["sessions"]["seconds"]
    _, about = load_tensors(tmp_path / "run" / "checkpoint" / "sessions.safetensors")
    assert 100 < about["seconds"]["sessions"]["seconds"] < in_all


def test_a_finished_run_is_read_and_not_repeated(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = start("limit")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    monkeypatch.setattr(runs, "execute", lambda *_: pytest.fail("it ran again"))
    assert runs.resume(where(tmp_path / "run"), QUIET) == result
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


# a fixed encoder and blends; and a choice among calibrators, made on an inner benchmark
FIXED = ["encoder_lr=0", "fake_classes=mixed", "rows=means", "logits=cosine", "whiten=1", "dropout=0"]
RELEASED = [
    "tasks=replaced", "fake_way=2", "recursion=3", "placeholders=true", "dropout=0", "refresh_every=2",
    "augmented_steps=2", "logits=cosine",
]  # fmt: skip
CHECKED = [*FIXED, "check=true", "calibrator=paired,transformer", "base=5", "images=10"]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        *((name, []) for name in methods.names()),
        pytest.param("limit", FIXED, marks=pytest.mark.slow),
        pytest.param("limit", CHECKED, marks=pytest.mark.slow),
        ("limit", RELEASED),
        pytest.param("limit", ["turned=0.5"], marks=pytest.mark.slow),
    ],
)
def test_interrupted_at_every_line_of_its_metrics_and_resumed(
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    power_cut: PowerCut,
    name: str,
    more: list[str],
) -> None:
    """One run is cut off again and again, each time a line later; in the end it equals the uninterrupted run."""
    monkeypatch.setenv("FSCIL_CACHE", "off")
    expected = start(name, "epochs=2", "trials=1", *more, folder="whole")
    config = resolve(name, "tiny", ["epochs=2", "trials=1", *more])
    total = len(lines(tmp_path / "whole"))
    for count in range(1, total + 1):
        with power_cut(lines=count), pytest.raises(PowerCutError):
            runs.finish(config, where(tmp_path / "run"), QUIET)
        assert not (tmp_path / "run" / "result.json").exists()
    result = runs.resume(where(tmp_path / "run"), QUIET)
    assert "total" in expected.seconds
    assert "total" not in result.seconds  # this process knows only part of it
    assert result.accuracy == expected.accuracy
    assert result.trials == expected.trials
    assert result.note == expected.note
    assert ("area against class means on" in result.note) == ("check=true" in more)
    for file in ("predictions.safetensors", "model/model.safetensors"):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    told, expected_lines = (
        sorted(
            (line["stage"], line["segment"], line.get("scope"), line.get("loss")) for line in lines(tmp_path / folder)
        )
        for folder in ("run", "whole")
    )
    assert told == expected_lines  # no line is missing or duplicated


def test_a_resumed_run_has_its_trials_in_order(
    start: Start, tmp_path: Path, power_cut: PowerCut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")
    expected = start("decoupled-cosine", "trials=6", folder="whole")
    with power_cut(lines=len(lines(tmp_path / "whole"))), pytest.raises(PowerCutError):
        start("decoupled-cosine", "trials=6")
    result = runs.resume(where(tmp_path / "run"), QUIET)
    assert [trial["trial"] for trial in result.trials] == [1, 2, 3, 4, 5, 6]
    assert result.trials == expected.trials


@pytest.mark.parametrize("lines", [1, 2, 5])
def test_a_resumed_run_keeps_its_command_and_what_was_changed(
    start: Start, tmp_path: Path, power_cut: PowerCut, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """They come from the run's own configuration, not from the command that resumed it."""
    monkeypatch.setenv("FSCIL_CACHE", "off")
    with power_cut(lines), pytest.raises(PowerCutError):
        start("decoupled-cosine", "epochs=2", seed=3)
    result = runs.resume(where(tmp_path / "run"), QUIET)
    assert result.changed == ["epochs=2"]
    assert result.command == "fscil run decoupled-cosine tiny epochs=2 --seed 3"
    kept = read_result(tmp_path / "run")
    assert (kept.changed, kept.command) == (result.changed, result.command)
    whole = start("decoupled-cosine", "epochs=2", seed=3, folder="whole")
    assert (whole.changed, whole.command, whole.config_hash) == (result.changed, result.command, result.config_hash)


def test_half_written_files_of_a_killed_run_are_swept_up(start: Start, tmp_path: Path) -> None:
    start("decoupled-cosine")
    (tmp_path / "run" / "result.json").unlink()
    names = (".result.json.0123abcd.part", "model/.model.safetensors.0123abcd.part")
    halves = [tmp_path / "run" / name for name in names]
    for half in halves:
        half.write_bytes(b"half")
    runs.resume(where(tmp_path / "run"), QUIET)
    assert not [half for half in halves if half.exists()]


def test_finish_starts_goes_on_or_reads_but_mixes_nothing(start: Start, tmp_path: Path) -> None:
    config = resolve("decoupled-cosine", "tiny")
    first = runs.finish(config, where(tmp_path / "run"), QUIET)
    (tmp_path / "run" / "result.json").unlink()
    second = runs.finish(config, where(tmp_path / "run"), QUIET)
    assert second.accuracy == first.accuracy
    assert runs.finish(config, where(tmp_path / "run"), QUIET) == second
    with pytest.raises(UserError, match="holds a run with other settings"):
        runs.finish(resolve("decoupled-cosine", "tiny", ["epochs=2"]), where(tmp_path / "run"), QUIET)


def test_a_checkpoint_of_other_data_or_settings_is_not_taken_up(
    photo_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = photo_folder(classes=4, images=5, size=16)
    settings = [f"path={photos}", "size=16", "base_classes=3", "way=1", "shot=1", "epochs=2"]
    config = resolve("decoupled-cosine", "folder", settings)
    monkeypatch.setattr(runs, "summarise_run", lambda *_: pytest.fail("killed after its sessions"))
    with pytest.raises(pytest.fail.Exception):
        runs.start(config, where(tmp_path / "run"), QUIET)
    monkeypatch.undo()
    for label in range(4):
        (photos / f"class{label}" / "more.jpg").write_bytes((photos / f"class{label}" / "0.jpg").read_bytes())
    runs.read_dataset.cache_clear()
    with pytest.raises(UserError, match="is a checkpoint of other settings or other data"):
        runs.resume(where(tmp_path / "run"), QUIET)
