from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console
from sklearn.metrics import accuracy_score, confusion_matrix

from fscil import methods, runs
from fscil.benchmark import Benchmark, validation_benchmark
from fscil.config import Config, read_config, resolve
from fscil.datasets import decode
from fscil.engine.checkpoint import load_tensors
from fscil.engine.metrics_log import MetricsLog
from fscil.errors import UserError
from fscil.methods import encoder_cache
from fscil.results import Result, read_result

QUIET = Console(quiet=True)
Start = Callable[..., Result]


def where(folder: Path) -> runs.RunEnvironment:
    return runs.RunEnvironment(torch.device("cpu"), folder, checkpoint_seconds=0.0)


@pytest.fixture
def start(tiny_dataset: str, tmp_path: Path) -> Start:
    """start(name, *overrides, folder="run", seed=1): a run of the tiny dataset."""

    def begin(name: str, *overrides: str, folder: str = "run", seed: int = 1) -> Result:
        return runs.start(resolve(name, tiny_dataset, overrides, seed), where(tmp_path / folder), QUIET)

    return begin


class PowerCutError(Exception):
    pass


PowerCut = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def power_cut(monkeypatch: pytest.MonkeyPatch) -> PowerCut:
    """with power_cut(lines=n): a run ends as soon as its metrics have so many lines."""

    @contextmanager
    def at(lines: int) -> Iterator[None]:
        write = MetricsLog.write

        def until(log: MetricsLog, line: dict[str, Any]) -> None:
            write(log, line)
            if log.path and len(log.path.read_text().splitlines()) == lines:
                raise PowerCutError

        with monkeypatch.context() as patch:
            patch.setattr(MetricsLog, "write", until)
            yield

    return at


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", methods.names())
def test_a_run_folder_holds_all_of_it(start: Start, tmp_path: Path, name: str) -> None:
    result = start(name)
    folder = tmp_path / "run"
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found >= {
        "config.toml", "metrics.jsonl", "predictions.safetensors", "result.json", "report.html", "curve.png",
        "model/config.json", "model/model.safetensors", "model/README.md",
    }  # fmt: skip
    assert not [path for path in found if path.endswith(".part")]
    assert read_result(folder) == result
    assert read_config(folder / "config.toml") == resolve(name, "tiny")
    assert (result.method, result.benchmark, result.seed, result.trial) == (name, "tiny", 1, 1)
    assert result.classes_per_session == [4, 2, 1]
    assert [line["accuracy"] for line in lines(folder) if line["stage"] == "session"] == [
        round(accuracy, 3) for accuracy in result.accuracy
    ]


@pytest.mark.parametrize("name", methods.names())
def test_numbers_are_those_of_the_predictions(start: Start, tmp_path: Path, name: str) -> None:
    result = start(name)
    kept, _ = load_tensors(tmp_path / "run" / "predictions.safetensors")
    labels, predictions = kept["labels"].numpy(), kept["predictions"].numpy()
    for i, seen in enumerate(np.cumsum(result.classes_per_session)):
        here = labels < seen
        assert (predictions[i, here] >= 0).all()
        assert result.accuracy[i] == pytest.approx(100 * accuracy_score(labels[here], predictions[i, here]))
    assert result.last == result.accuracy[-1]
    assert result.confusion == confusion_matrix(labels, predictions[-1], labels=range(7)).tolist()


def test_parameters_are_counted(start: Start) -> None:
    assert start("decoupled-cosine").parameters == {"inference": 271_824 + 7 * 64, "training_only": 0}
    calibrator = 4 * 64**2 + 3 * 64
    assert start("limit", folder="limit").parameters == {"inference": 271_824 + 7 * 64 + calibrator, "training_only": 0}


def test_the_same_seed_gives_the_same_files(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        start("limit", folder=folder, seed=seed)
    for file in ("predictions.safetensors", "model/model.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    models = [(tmp_path / folder / "model" / "model.safetensors").read_bytes() for folder in "ac"]
    assert models[0] != models[1]


def test_a_folder_with_a_run_is_not_written_over(start: Start, tmp_path: Path) -> None:
    start("decoupled-cosine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"already holds a run; go on with --resume .*, or choose another --out"):
        start("limit")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_left_over_checkpoints_are_not_taken_for_those_of_a_new_run(
    start: Start, tmp_path: Path, power_cut: PowerCut
) -> None:
    with power_cut(lines=3), pytest.raises(PowerCutError):
        start("limit", "epochs=2")
    for file in ("config.toml", "metrics.jsonl"):
        (tmp_path / "run" / file).unlink()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["checkpoint"]
    with pytest.raises(UserError, match="already holds a run"):
        start("limit")


@pytest.mark.parametrize("name", methods.names())
def test_a_finished_run_leaves_no_checkpoint(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also where it was killed between its result and the end."""
    start(name, "trials=1")
    assert not (tmp_path / "run" / "checkpoint").exists()
    with monkeypatch.context() as patch:
        patch.setattr(runs, "drop_checkpoints", lambda _: None)
        start(name, "trials=1", folder="killed")
    assert (tmp_path / "killed" / "checkpoint" / "base.safetensors").exists()
    runs.resume(where(tmp_path / "killed"), QUIET)
    assert not (tmp_path / "killed" / "checkpoint").exists()


def test_a_refused_run_leaves_the_folder_to_the_corrected_one(start: Start, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="lower fake_way"):
        start("limit", "fake_way=50")
    assert not (tmp_path / "run").exists()
    assert start("limit").last >= 0


def test_a_finished_run_is_read_and_not_repeated(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = start("limit")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    monkeypatch.setattr(runs, "execute", lambda *_: pytest.fail("it ran again"))
    assert runs.resume(where(tmp_path / "run"), QUIET) == result
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("name", "more"), [*((name, []) for name in methods.names()), ("limit", ["encoder_lr=2e-4", "dropout=0.5"])]
)
def test_interrupted_at_every_line_of_its_metrics_and_resumed(
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    power_cut: PowerCut,
    name: str,
    more: list[str],
) -> None:
    """One run is cut off again and again, each time a line later; in the end it is the run that never was."""
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
    assert "total" not in result.seconds  # of which this process knows only a part
    assert result.accuracy == expected.accuracy
    assert result.trials == expected.trials
    for file in ("predictions.safetensors", "model/model.safetensors"):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    told, expected_lines = (
        sorted(
            (line["stage"], line["segment"], line.get("scope"), line.get("loss")) for line in lines(tmp_path / folder)
        )
        for folder in ("run", "whole")
    )
    assert told == expected_lines  # nothing is missing and nothing is told twice


@pytest.mark.parametrize("lines", [1, 2, 5])
def test_a_resumed_run_keeps_its_command_and_what_was_changed(
    start: Start, tmp_path: Path, power_cut: PowerCut, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """They come from the run's own configuration, not from the command that went on with it."""
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


def test_trials_repeat_the_sessions_with_other_shots(start: Start, tmp_path: Path) -> None:
    result = start("limit", "trials=3")
    assert [trial["trial"] for trial in result.trials] == [1, 2, 3]
    assert result.trials[0]["accuracy"] == result.accuracy
    assert result.trials[0]["harmonic_mean"] == result.harmonic_mean
    assert all(trial["accuracy"][0] == result.accuracy[0] for trial in result.trials)  # one base model for all
    assert start("limit", folder="without").accuracy == result.accuracy
    third = start("limit", "trial=3", folder="third")
    assert third.trial == 3
    assert third.accuracy == result.trials[2]["accuracy"]
    scopes = [line["scope"] for line in lines(tmp_path / "run") if line["stage"] == "session"]
    assert scopes == ["trial-1-"] * 3 + ["trial-2-"] * 3 + ["trial-3-"] * 3 + [""] * 3


def test_trials_read_the_images_once(
    photo_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    decode_one = decode.decode

    def counting(data: bytes, size: int, name: str) -> NDArray[np.uint8]:
        read.append(name)
        return decode_one(data, size, name)

    monkeypatch.setattr(decode, "decode", counting)
    photos = photo_folder(classes=7, images=6)
    settings = [f"path={photos}", "way=2", "shot=2", "size=16", "epochs=1", "batch=10", "trials=3"]
    result = runs.start(resolve("decoupled-cosine", "folder", settings), where(tmp_path / "run"), QUIET)
    assert len(result.trials) == 3
    assert sorted(read) == sorted(str(path) for path in photos.glob("*/*"))


def test_validation_runs_on_base_classes_alone(start: Start, tiny_benchmark: Callable[..., Benchmark]) -> None:
    result = start("limit", "validation=classes", "base=9", "images=10", "trials=2")
    assert result.benchmark == "tiny-validation"
    assert result.classes_per_session == [7, 2]
    assert set(result.class_names) <= set(tiny_benchmark(base=9).class_names[:9])
    assert sum(map(sum, result.confusion)) == 9 * 2  # the last fifth of ten training images a class


def test_validation_never_sees_a_test_image_and_draws_by_trial(
    tiny_dataset: str, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark(base=9, images=10)
    inner = validation_benchmark(benchmark)
    test = {image.numpy().tobytes() for image in benchmark.test_images}
    held_out = {image.numpy().tobytes() for image in inner.test_images}
    trained = {image.numpy().tobytes() for session in inner.sessions for image in session.images}
    base = {image.numpy().tobytes() for image in benchmark.sessions[0].images}
    assert held_out | trained <= base
    assert held_out.isdisjoint(trained)
    assert not test & (held_out | trained)
    config = resolve("limit", tiny_dataset, ["validation=classes", "base=9", "images=10"])
    loaded = runs.load_benchmark(config, None)
    assert torch.equal(loaded.sessions[1].images, inner.sessions[1].images)
    first, second = (loaded.redrawn(trial).sessions[1].images for trial in (1, 2))
    assert torch.equal(first, inner.sessions[1].images)
    assert not torch.equal(first, second)


def test_seconds_name_every_stage_and_say_what_was_cached(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSCIL_CACHE", str(tmp_path / "cache"))
    first, second = start("limit"), start("limit", folder="again")
    assert set(first.seconds) == set(second.seconds) == {"read", "pretrain", "meta-train", "sessions", "total"}
    assert not first.seconds["pretrain"]["cached"]
    assert second.seconds["pretrain"] == {"seconds": first.seconds["pretrain"]["seconds"], "cached": True}
    assert not second.seconds["meta-train"]["cached"]


def test_one_process_compares_no_data_and_looks_at_the_base_session_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[int] = []
    for module in (runs, encoder_cache):
        monkeypatch.setattr(module, "digest", lambda images, labels: hashed.append(len(labels)) or "digest")
    start("decoupled-cosine")
    assert hashed == [4 * 8]


def test_a_shot_seed_that_numpy_cannot_take_is_refused(start: Start) -> None:
    with pytest.raises(UserError, match="trial=-1"):
        start("limit", "trial=-1")


def test_a_diverging_run_says_what_to_do(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")
    with pytest.raises(UserError, match=r"pretrain diverged.*lower the learning rate"):
        start("decoupled-cosine", "lr=1e30", "epochs=3")


def test_the_configuration_is_complete(tiny_dataset: str) -> None:
    config: Config = resolve("limit", tiny_dataset)
    assert set(config.settings) == set(vars(methods.get("limit").Settings()))
    assert set(config.options) == {"trial", "base", "images"}
    assert set(config.run) == {"validation", "trials", "precision", "segment_mib"}
