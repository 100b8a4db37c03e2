from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, confusion_matrix

import fscil
from fscil import margins, methods, run_facts, runs
from fscil.benchmark import Benchmark, validation_benchmark
from fscil.config import Config, read_config, resolve
from fscil.datasets import decode
from fscil.engine.checkpoint import load_tensors
from fscil.errors import UserError
from fscil.methods import encoder_cache
from fscil.metrics import Headline
from fscil.results import read_result
from run_helpers import QUIET, Start, every_method, lines, where


@pytest.mark.parametrize("name", every_method())
def test_a_run_folder_holds_all_of_it(start: Start, tmp_path: Path, name: str) -> None:
    result = start(name, drawn=True)
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


@pytest.mark.parametrize("name", every_method())
def test_every_method_obeys_the_margin(start: Start, tmp_path: Path, name: str) -> None:
    """It changes the predictions, in the run and in the saved model, and nothing else."""
    results = {margin: start(name, f"base_margin={margin}", folder=str(margin)) for margin in (0.0, 0.3, 1000.0)}
    assert {margin: result.margin for margin, result in results.items()} == {margin: margin for margin in results}
    without, lowered, all_new = results.values()
    assert all_new.base == 0
    assert (all_new.base_to_new, all_new.new_to_base) == (100, 0)
    assert all_new.new == pytest.approx(all_new.new_among_new)
    headline = {name: getattr(without, name) for name in Headline.__annotations__}
    assert [result.margin_zero for result in results.values()] == [headline] * 3
    assert lowered.area == pytest.approx(without.area)
    assert lowered.new >= without.new
    for margin, result in results.items():
        folder = tmp_path / str(margin)
        kept, _ = load_tensors(folder / "predictions.safetensors")
        assert {rows.dtype for rows in kept.values()} == {torch.int32, torch.float32}
        scores = margins.read_scores(folder, result.classes_per_session)
        assert (margins.predictions_at(scores, margin) == kept["predictions"].numpy()).all()
        assert fscil.load(folder / "model").model.base_margin == margin


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
    with pytest.raises(UserError, match=r"already holds a run; continue it with --resume .*, or choose another --out"):
        start("limit")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_refused_run_leaves_the_folder_to_the_corrected_one(start: Start, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="lower fake_way"):
        start("limit", "fake_way=50")
    assert not (tmp_path / "run").exists()
    assert start("limit").last >= 0


def test_trials_repeat_the_sessions_with_other_shots(start: Start, tmp_path: Path) -> None:
    result = start("limit", "trials=3")
    assert [trial["trial"] for trial in result.trials] == [1, 2, 3]
    assert result.trials[0]["accuracy"] == result.accuracy
    assert (result.trials[0]["harmonic_mean"], result.trials[0]["area"]) == (result.harmonic_mean, result.area)
    assert all(trial["accuracy"][0] == result.accuracy[0] for trial in result.trials)  # one base model for all
    assert start("limit", folder="without").accuracy == result.accuracy
    third = start("limit", "trial=3", folder="third")
    assert third.trial == 3
    assert (third.accuracy, third.area) == (result.trials[2]["accuracy"], result.trials[2]["area"])
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
    for module in (run_facts, encoder_cache):
        monkeypatch.setattr(module, "digest", lambda images, labels: hashed.append(len(labels)) or "digest")
    start("decoupled-cosine")
    assert hashed == [4 * 8]


def test_what_the_check_found_is_told_wherever_the_run_is(tiny_dataset: str, tmp_path: Path) -> None:
    config = resolve("limit", tiny_dataset, ["check=true", "base=6"])
    result = runs.start(replace(config, note="for speed, few steps"), where(tmp_path / "run"), QUIET)
    own, found = result.note.split("; ", 1)
    assert own == "for speed, few steps"
    assert found.startswith("calibration ")
    assert "area against class means on 4 + 2 base classes: transformer " in found
    assert read_result(tmp_path / "run").note == result.note
    for file in ("report.html", "model/README.md"):
        assert found in html.unescape((tmp_path / "run" / file).read_text())


def test_a_shot_seed_that_numpy_cannot_take_is_refused(start: Start) -> None:
    with pytest.raises(UserError, match="trial=-1"):
        start("limit", "trial=-1")


def test_a_diverging_run_says_what_to_do(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")
    with pytest.raises(UserError, match=r"pretrain diverged.*lower the learning rate"):
        start("decoupled-cosine", "lr=1000", "weight_decay=1000", "batch=4")


def test_the_configuration_is_complete(tiny_dataset: str) -> None:
    config: Config = resolve("limit", tiny_dataset)
    assert set(config.settings) == set(vars(methods.get("limit").Settings()))
    assert set(config.options) == {"trial", "base", "images"}
    assert set(config.run) == {"validation", "base_margin", "trials", "precision", "segment_mib"}
