"""Two processes over gloo against one: the same numbers, and only rank 0 writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jobs
import pytest
import torch
from torch import Tensor

from fscil.engine.checkpoint import load_tensors

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What one process computes."""
    folder, threads = tmp_path_factory.mktemp("one"), torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSCIL_CACHE", "off")
        jobs.learn_all(folder)
        yield folder
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def two(one: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes compute together."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "runs").mkdir()
    jobs.learn_until_the_power_fails(folder / "stopped by one")
    for rank in (0, 1):
        jobs.write_photos(folder / f"photos of {rank}" / "photos")
    jobs.together(jobs.everything, folder, meeting=folder / "meeting")
    return folder


def state(folder: Path, rank: int = 0) -> dict[str, Tensor]:
    return load_tensors(folder / f"state-{rank}.safetensors")[0]


def losses(folder: Path) -> dict[tuple[str, int], float]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return {(line["stage"], line["segment"]): line["loss"] for line in lines}


def furthest(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest difference between any two numbers of the same name."""
    assert {name: tensor.shape for name, tensor in a.items()} == {name: tensor.shape for name, tensor in b.items()}
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in a if a[name].numel())


CASES = [*(("float32", name) for name in jobs.IN_FLOAT32), *(("float64", name) for name in jobs.SCENARIOS)]


@pytest.mark.parametrize(("precision", "scenario"), CASES)
def test_ten_steps_agree_with_one_process(one: Path, two: Path, precision: str, scenario: str) -> None:
    """Weights, running statistics and losses."""
    alone, shared = one / precision / scenario, two / precision / scenario
    tolerance = {"float32": 1e-4, "float64": 1e-7}[precision]
    assert furthest(state(alone), state(shared)) < tolerance
    assert losses(shared) == pytest.approx(losses(alone), abs=tolerance)


@pytest.mark.parametrize("scenario", jobs.IN_FLOAT32)
def test_ten_steps_go_further_than_that(one: Path, scenario: str) -> None:
    """The two precisions use different learning rates, and it shows."""
    assert furthest(state(one / "float32" / scenario), state(one / "float64" / scenario)) > 0.01


@pytest.mark.parametrize(("precision", "scenario"), CASES)
def test_both_processes_hold_the_same_model_to_the_bit(two: Path, precision: str, scenario: str) -> None:
    assert furthest(state(two / precision / scenario, 0), state(two / precision / scenario, 1)) == 0


def test_both_processes_choose_the_same_calibrator_as_one(one: Path, two: Path) -> None:
    folders = [each / "float64" / "calibration that is checked" for each in (one, two, two)]
    told = [
        load_tensors(folder / f"state-{rank}.safetensors")[1]["notes"]
        for folder, rank in zip(folders, (0, 0, 1), strict=True)
    ]
    assert told[0] == told[1] == told[2]
    assert "on 4 + 1 base classes: paired " in told[0][0]
    assert {"check-pretrain", "check-transformer-meta-train"} <= {stage for stage, _ in losses(folders[0])}


def test_a_run_stopped_by_one_process_is_finished_by_two(one: Path, two: Path) -> None:
    whole = one / "float32" / "blends"
    assert furthest(state(whole), state(two / "stopped by one")) < 1e-4
    assert losses(two / "stopped by one") == pytest.approx(losses(whole), abs=1e-4)


def test_a_run_stopped_by_two_processes_is_finished_by_one(one: Path, two: Path) -> None:
    whole, stopped = one / "float32" / "blends", two / "stopped by two"
    assert list(losses(stopped)) == [("pretrain", 1), ("meta-train", 1)]
    jobs.learn("blends", stopped)
    assert furthest(state(whole), state(stopped)) < 1e-4
    assert losses(stopped) == pytest.approx(losses(whole), abs=1e-4)


def test_streamed_photos_on_two_machines_are_learned_like_resident_ones_by_one_process(
    one: Path, two: Path, tmp_path: Path
) -> None:
    """Copies have other modification times, which is how streamed files are identified."""
    jobs.write_photos(tmp_path / "photos")
    jobs.learn_photos(tmp_path, "never")
    models = [folder / "run" / "model" / "model.safetensors" for folder in (tmp_path, two / "photos of 0")]
    assert furthest(*(load_tensors(model)[0] for model in models)) < 1e-4
    assert [path.name for path in (two / "photos of 1").iterdir()] == ["photos"]


@pytest.mark.parametrize("which", jobs.NORMS)
def test_shared_normalisation_is_torchs_over_the_whole_batch(two: Path, which: str) -> None:
    """Outputs, gradients, running statistics; the seven samples are split into three and four."""
    expected = jobs.normalise(which, torch.float64)
    for rank in (0, 1):
        every = load_tensors(two / f"norms-{rank}.safetensors")[0]
        assert furthest(expected, {name: every[f"{which} {name}"] for name in expected}) < 1e-12


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def result(two: Path, name: str, rank: int) -> dict[str, Any]:
    return json.loads((two / "runs" / f"{name}-{rank}.json").read_text())


def test_the_first_process_alone_writes(two: Path) -> None:
    written = files(two / "runs" / "0")
    assert {"first/result.json", "first/metrics.jsonl", "first/model/model.safetensors"} <= written
    assert len([name for name in written if name.startswith("cache/encoders/") and name.endswith(".safetensors")]) == 1
    assert not (two / "runs" / "1").exists()
    lines = [json.loads(line) for line in (two / "runs" / "0" / "first" / "metrics.jsonl").read_text().splitlines()]
    assert [line["segment"] for line in lines] == [1, 0, 1, 2, 3]  # an epoch and four sessions, each once


def test_every_process_has_the_result(two: Path) -> None:
    first, second = result(two, "first", 0), result(two, "first", 1)
    assert first["accuracy"] == second["accuracy"]
    assert first["device"].startswith("2 x cpu")


def test_a_cached_encoder_reaches_the_process_that_has_no_cache(two: Path) -> None:
    for rank in (0, 1):
        cached = [result(two, name, rank)["seconds"]["pretrain"]["cached"] for name in ("first", "again")]
        assert cached == [False, True]
        assert result(two, "again", rank)["accuracy"] == result(two, "first", rank)["accuracy"]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("taken", "0/first already holds a run; continue it with --resume"),
        ("differing", "process 1 has a different configuration from process 0"),
        ("small batch", "a step of 1 images cannot be shared by 2 processes; start fewer, or take more images"),
    ],
)
def test_what_one_process_refuses_all_refuse_in_the_same_words(two: Path, what: str, words: str) -> None:
    said = [json.loads((two / "runs" / f"said-{rank}.json").read_text())[what] for rank in (0, 1)]
    assert words in said[0]
    assert said[1] == said[0]


def test_a_refused_run_leaves_nothing_behind(two: Path) -> None:
    assert not (two / "runs" / "0" / "differing").exists()
