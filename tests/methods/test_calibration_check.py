"""check=true: calibrators are tried on an inner benchmark of the base classes, and used only where they help."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from fscil.benchmark import Benchmark, Session
from fscil.engine import Engine
from fscil.engine.metrics_log import MetricsLog
from fscil.errors import UserError
from fscil.methods import Method, calibration_check
from fscil.methods.limit import Limit
from run_helpers import Start

Build = Callable[..., Benchmark]
Learn = Callable[..., Method]
# embeddings that prototypes can be compared on; the transformer is meta-trained with a fixed encoder
SAME = {"power": 0.5, "whiten": 1.0, "shift": 1}
PLUS = {**SAME, "rows": "means", "logits": "cosine", "encoder_lr": 0.0, "dropout": 0.0}


@pytest.fixture
def learn(make_method: Callable[..., Method]) -> Learn:
    """learn(name, benchmark, **settings): a method after its base session."""

    def learned(name: str, benchmark: Benchmark, **settings: Any) -> Method:
        method = make_method(name, benchmark, **settings)
        method.check_sessions(benchmark.sessions)
        method.learn_base(benchmark.sessions[0])
        return method

    return learned


@pytest.fixture
def gains(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """gains(paired=[...], transformer=[...]): what these calibrators gain over class means in each draw."""

    def set_to(**by_name: Sequence[float]) -> None:
        by_name["cosine"] = [0.0] * calibration_check.DRAWS  # class means

        def areas(trial: Limit, inner: Benchmark) -> list[float]:
            return [50.0 + gain for gain in by_name[trial.model.calibrator_name]]

        monkeypatch.setattr(calibration_check, "area_of_draws", areas)

    return set_to


def same_state(a: Method, b: Method) -> bool:
    mine, others = a.state(), b.state()
    return mine.keys() == others.keys() and all(torch.equal(mine[name], others[name]) for name in mine)


def test_a_calibrator_that_loses_is_not_used(learn: Learn, tiny_benchmark: Build) -> None:
    """With a thousand times what all rows share taken away, all queries are the same."""
    benchmark = tiny_benchmark(base=6, images=10)
    method = learn("limit", benchmark, check=True, calibrator="paired", common=1000.0, epochs=3, **PLUS)
    (note,) = method.notes
    assert note.startswith("calibration is off, checked: area against class means on 4 + 2 base classes: paired -")
    means = learn("decoupled-cosine", benchmark, epochs=3, **SAME)
    assert method.model.spec == means.model.spec
    for session in benchmark.sessions[1:]:
        method.learn_session(session)
        means.learn_session(session)
    assert same_state(method, means)
    assert torch.equal(method.logits(benchmark.test_images), means.logits(benchmark.test_images))


@pytest.mark.parametrize(("winner", "loser"), [("paired", "transformer"), ("transformer", "paired")])
def test_the_best_calibrator_is_used_as_if_nothing_had_been_checked(
    learn: Learn, tiny_benchmark: Build, gains: Callable[..., None], winner: str, loser: str
) -> None:
    gains(**{winner: [2.5] * 20, loser: [1.0] * 20})
    benchmark = tiny_benchmark(base=6, images=10)
    method = learn("limit", benchmark, check=True, calibrator="paired, transformer", **PLUS)
    told = ", ".join(f"{name} {'+2.50' if name == winner else '+1.00'} ± 0.00" for name in ("paired", "transformer"))
    assert method.notes == [f"calibration by {winner}, checked: area against class means on 4 + 2 base classes: {told}"]
    assert same_state(method, learn("limit", benchmark, calibrator=winner, **PLUS))


@pytest.mark.parametrize(
    ("differences", "used"),
    [
        ([0.0] * 20, False),
        ([1.0] * 11 + [-1.0] * 9, False),  # +0.10 ± 0.23
        ([1.0] * 14 + [-1.0] * 6, False),  # +0.40 ± 0.21
        ([1.0] * 15 + [-1.0] * 5, True),  # +0.50 ± 0.20
        ([-1.0] * 20, False),
    ],
)
def test_a_gain_must_exceed_twice_its_standard_error(
    learn: Learn, tiny_benchmark: Build, gains: Callable[..., None], differences: list[float], used: bool
) -> None:
    gains(paired=differences)
    method = learn("limit", tiny_benchmark(base=6, images=10), check=True, calibrator="paired", **PLUS)
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(20)
    assert method.notes[0].endswith(f"paired {mean:+.2f} ± {error:.2f}")
    assert method.model.calibrator_name == ("paired" if used else "cosine")


@pytest.mark.parametrize(
    ("sizes", "sessions", "why"),
    [
        ({"base": 2}, 3, "there are only 2; three are needed"),
        ({"base": 6}, 1, "there is no few-shot session to imitate"),
        ({"base": 6, "images": 3, "shots": (3, 1)}, 3, "class '4' has 2 training images, fewer than its 3 shots"),
        ({"base": 6, "images": 2, "shots": (1, 1)}, 3, "whiten needs base classes with two different images"),
    ],
)
def test_what_cannot_be_checked_is_not_used(
    make_method: Callable[..., Method], tiny_benchmark: Build, sizes: dict[str, Any], sessions: int, why: str
) -> None:
    benchmark, said = tiny_benchmark(**sizes), StringIO()
    engine = Engine(console=Console(file=said, width=40))
    method = make_method("limit", benchmark, engine=engine, check=True, calibrator="paired", **PLUS)
    method.check_sessions(benchmark.sessions[:sessions])
    method.learn_base(benchmark.sessions[0])
    (note,) = method.notes
    assert note.startswith("calibration is off, since it cannot be checked: ")
    assert why in note
    assert note in said.getvalue().splitlines()  # on the console, too, in one line
    assert method.model.calibrator_name == "cosine"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"fake_way": 3}, "fake tasks of 2 phases x 3-way need 7 base classes"),  # there are 7, but 5 in the check
        ({"fake_way": 30}, "fake tasks of 2 phases x 30-way need 61 base classes"),
        ({"fake_shot": 8}, "a fake task needs 8 shots and 1 queries"),
        ({"rows_lr": 0.0, "calibrator_lr": 0.0}, "nothing is left to meta-train"),
    ],
)
def test_a_calibrator_that_cannot_be_tried_does_not_hide_the_others(
    learn: Learn, tiny_benchmark: Build, settings: dict[str, Any], why: str
) -> None:
    benchmark = tiny_benchmark(base=7, images=10)
    method = learn("limit", benchmark, check=True, calibrator="transformer,paired", **PLUS, **settings)
    assert "on 5 + 2 base classes: paired " in method.notes[0]
    assert f"transformer could not be tried ({why}" in method.notes[0]
    assert method.model.calibrator_name in ("paired", "cosine")


def test_what_can_be_tried_but_not_trained_on_all_base_classes_is_left_out(
    make_method: Callable[..., Method], tiny_benchmark: Build, gains: Callable[..., None]
) -> None:
    """The last base class has four images: enough to arrive late in the check, but not for fake tasks."""
    gains(transformer=[1.0] * 20)
    benchmark = tiny_benchmark(base=6, images=10)
    base, *later = benchmark.sessions
    few = Session(base.classes, base.images[:-6], base.labels[:-6])
    method = make_method("limit", benchmark, check=True, **{**PLUS, "fake_shot": 4})
    method.check_sessions([few, *later])
    method.learn_base(few)
    assert "could not be tried (a fake task needs 4 shots and 1 queries of a class, but one" in method.notes[0]
    assert method.model.calibrator_name == "cosine"


def test_a_calibrator_that_diverges_is_not_used(learn: Learn, tiny_benchmark: Build) -> None:
    benchmark = tiny_benchmark(base=6, images=10)
    method = learn(
        "limit", benchmark, check=True, **{**PLUS, "calibrator_lr": 1000, "inner_scale": 1e6, "logits": "inner"}
    )
    assert "transformer could not be tried (meta-train diverged in segment " in method.notes[0]
    assert method.model.calibrator_name == "cosine"


def test_a_full_disk_is_no_verdict_on_a_calibrator(
    learn: Learn, tiny_benchmark: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = MetricsLog.write

    def fill(log: MetricsLog, line: dict[str, Any]) -> None:
        if line["stage"] == "check-transformer-meta-train":
            raise UserError("no space left")
        write(log, line)

    monkeypatch.setattr(MetricsLog, "write", fill)
    with pytest.raises(UserError, match="no space left"):
        learn("limit", tiny_benchmark(base=6, images=10), check=True, **PLUS)


def test_a_calibrator_named_twice_is_tried_once(learn: Learn, tiny_benchmark: Build) -> None:
    method = learn("limit", tiny_benchmark(base=6), check=True, calibrator="transformer,transformer", **PLUS)
    assert method.notes[0].count("transformer") <= 2  # as the winner, and with its gain


@pytest.mark.slow
def test_areas_are_those_of_validation_runs_with_the_same_encoder(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the check says can be seen in three runs with validation=classes, whose encoder it shares."""
    monkeypatch.setenv("FSCIL_CACHE", str(tmp_path / "cache"))
    data = ["base=9", "images=10", "epochs=3"]
    plus = ["rows=means", "logits=cosine", "encoder_lr=0", "dropout=0", "whiten=1", "shift=1"]
    validation = [*data, "validation=classes", f"trials={calibration_check.DRAWS}", "whiten=1", "shift=1"]
    plain = [trial["area"] or 0 for trial in start("decoupled-cosine", *validation, folder="means").trials]
    told = []
    for name in ("paired", "transformer"):
        result = start("limit", *validation, *plus, f"calibrator={name}", folder=name)
        gains = [(trial["area"] or 0) - area for trial, area in zip(result.trials, plain, strict=True)]
        told.append(f"{name} {statistics.fmean(gains):+.2f} ± {statistics.stdev(gains) / math.sqrt(20):.2f}")
    checked = start("limit", *data, *plus, "check=true", "calibrator=paired,transformer", folder="checked")
    assert checked.note.endswith(f": area against class means on 7 + 2 base classes: {', '.join(told)}")
    assert checked.seconds["check-pretrain"]["cached"]
    assert not checked.seconds["pretrain"]["cached"]
    assert not checked.seconds["check-transformer-meta-train"]["cached"]
