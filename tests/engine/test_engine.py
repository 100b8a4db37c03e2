from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from rich.console import Console
from torch import Tensor

from fscil.engine import Engine, Stage, seed_for
from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.engine.stage import Batch
from fscil.errors import UserError

MakeStage = Callable[..., Stage]
MakeEngine = Callable[..., Engine]
SEGMENTS, STEPS = 5, 3

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def weights(stage: Stage) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in stage.module.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def metrics(engine: Engine) -> list[dict[str, Any]]:
    assert engine.log.path is not None
    return [json.loads(line) for line in engine.log.path.read_text().splitlines()]


def test_a_step_of_one_image_that_cannot_be_normalised_is_told_in_a_line(make_stage: MakeStage) -> None:
    norm = torch.nn.BatchNorm1d(2)
    stage = replace(make_stage(), loss=lambda batch: norm(torch.ones(1, 2)).sum())
    with pytest.raises(UserError, match="a step has a single image, which this encoder cannot normalise"):
        Engine(console=Console(quiet=True)).train(stage)


class PowerCutError(Exception):
    pass


def stopping(stage: Stage, at: int) -> Callable[[int], Batch]:
    """The stage's data, but the power fails when segment `at` is prepared."""

    def prepare(segment: int) -> Batch:
        if segment == at:
            raise PowerCutError
        return dict(stage.prepare(segment))

    return prepare


@pytest.mark.parametrize("nesterov", [False, True])
def test_steps_are_those_of_torchs_sgd(make_stage: MakeStage, nesterov: bool) -> None:
    trained = make_stage(momentum=0.8, weight_decay=0.01, nesterov=nesterov)
    Engine(seed=4, console=Console(quiet=True)).train(trained)

    by_hand = make_stage()
    groups = [{"params": group.parameters, "lr": group.lr} for group in by_hand.groups]
    optimiser = torch.optim.SGD(groups, momentum=0.8, weight_decay=0.01, nesterov=nesterov)
    step = 0
    for segment in range(SEGMENTS):
        torch.manual_seed(seed_for(4, "practice", segment))
        data = by_hand.prepare(segment)
        for i in range(STEPS):
            for group, each in zip(optimiser.param_groups, by_hand.groups, strict=True):
                group["lr"] = each.lr * 0.5 ** (step // 4)
            optimiser.zero_grad()
            by_hand.loss({name: tensor[i] for name, tensor in data.items()}).backward()
            optimiser.step()
            step += 1
    assert same(weights(trained), weights(by_hand))
    assert not same(weights(trained), weights(make_stage()))  # and something was learned


@pytest.mark.parametrize("every", [0.0, 1e9], ids=["checkpoint per segment", "no checkpoint"])
@pytest.mark.parametrize("at", range(SEGMENTS))
def test_interrupted_and_resumed_equals_uninterrupted(
    make_stage: MakeStage, make_engine: MakeEngine, at: int, every: float
) -> None:
    in_one_go = make_stage()
    make_engine("whole").train(in_one_go)

    with pytest.raises(PowerCutError):
        make_engine(checkpoint_seconds=every).train(make_stage(prepare=stopping(make_stage(), at)))
    torch.rand(7)  # a new process has another state of the global generator
    resumed, engine = make_stage(), make_engine(checkpoint_seconds=every)
    engine.train(resumed)

    assert same(weights(resumed), weights(in_one_go))
    path = engine.checkpoint_path("stage-practice") or Path()
    if every:
        assert not path.exists()  # none was due
    else:
        final, about = load_tensors(path)
        expected, _ = load_tensors(make_engine("whole").checkpoint_path("stage-practice") or Path())
        assert about["segments_done"] == SEGMENTS
        assert same(final, expected)  # including the momentum
    assert [line["segment"] for line in metrics(engine)] == [1, 2, 3, 4, 5]
    losses = [line["loss"] for line in metrics(make_engine("whole"))]
    assert [line["loss"] for line in metrics(engine)] == losses


def test_interrupted_again_and_again(make_stage: MakeStage, make_engine: MakeEngine) -> None:
    in_one_go = make_stage()
    make_engine("whole").train(in_one_go)
    for at in range(SEGMENTS):
        with pytest.raises(PowerCutError):
            make_engine().train(make_stage(prepare=stopping(make_stage(), at)))
    resumed = make_stage()
    make_engine().train(resumed)
    assert same(weights(resumed), weights(in_one_go))
    assert [line["segment"] for line in metrics(make_engine())] == [1, 2, 3, 4, 5]


def test_what_happens_after_a_segment_is_part_of_it(make_stage: MakeStage, make_engine: MakeEngine) -> None:
    """A resumed run neither repeats nor skips it."""

    def with_after(**fields: Any) -> Stage:
        stage = make_stage(**fields)

        def shrink(segment: int) -> None:
            for parameter in stage.module.parameters():
                parameter.data.mul_(1 - 0.1 / (segment + 1))

        return replace(stage, after=shrink)

    whole = with_after()
    make_engine("whole").train(whole)
    cut = with_after()
    with pytest.raises(PowerCutError):
        make_engine("cut", checkpoint_seconds=0.0).train(replace(cut, prepare=stopping(cut, 3)))
    resumed = with_after()
    make_engine("cut", checkpoint_seconds=0.0).train(resumed)
    assert same(weights(resumed), weights(whole))
    plain = make_stage()
    make_engine("plain").train(plain)
    assert not same(weights(whole), weights(plain))


def test_a_finished_stage_is_loaded_and_not_repeated(make_stage: MakeStage, make_engine: MakeEngine) -> None:
    first = make_stage()
    engine = make_engine()
    engine.train(first)
    again, later = make_stage(prepare=stopping(make_stage(), 0)), make_engine()
    later.train(again)
    assert same(weights(again), weights(first))
    assert later.seconds["practice"]["seconds"] == pytest.approx(engine.seconds["practice"]["seconds"], abs=0.5)
    assert len(metrics(later)) == SEGMENTS


def test_metrics_have_a_line_per_segment(make_stage: MakeStage, make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.train(make_stage())
    lines = metrics(engine)
    assert [(line["stage"], line["segment"], line["of"]) for line in lines] == [("practice", i, 5) for i in range(1, 6)]
    assert [line["lr_factor"] for line in lines] == [1, 1, 0.5, 0.25, 0.125]  # at the first of its three steps
    assert all(line["loss"] > 0 for line in lines)
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)


def test_lines_of_other_stages_and_scopes_survive_resumption(make_stage: MakeStage, make_engine: MakeEngine) -> None:
    make_engine().train(make_stage(name="earlier"))
    with pytest.raises(PowerCutError):
        make_engine(scope="trial-1-", checkpoint_seconds=1e9).train(make_stage(prepare=stopping(make_stage(), 3)))
    make_engine(scope="trial-1-").train(make_stage())
    make_engine(scope="trial-2-").train(make_stage())
    found = [line["stage"] for line in metrics(make_engine())]
    assert found == ["earlier"] * 5 + ["trial-1-practice"] * 5 + ["trial-2-practice"] * 5


def test_a_scope_changes_names_but_no_numbers(make_stage: MakeStage, make_engine: MakeEngine) -> None:
    plain, scoped = make_stage(), make_stage()
    make_engine("a").train(plain)
    engine = make_engine("b", scope="trial-3-")
    engine.train(scoped)
    assert same(weights(plain), weights(scoped))
    assert list(engine.seconds) == ["trial-3-practice"]


def test_stages_of_a_run_need_names_of_their_own(make_stage: MakeStage, make_engine: MakeEngine) -> None:
    """Otherwise the second would be taken for the first, already finished."""
    engine = make_engine()
    engine.train(make_stage())
    with pytest.raises(ValueError, match="'practice' was trained already"):
        engine.train(make_stage())
    engine.train(make_stage(name="more"))
    engine.scope = "trial-1-"
    engine.train(make_stage())
    assert list(engine.seconds) == ["practice", "more", "trial-1-practice"]


def test_checkpoints_come_when_they_are_due_and_go_when_they_are_superfluous(make_engine: MakeEngine) -> None:
    engine, patient, homeless = make_engine(), make_engine(checkpoint_seconds=1e9), Engine(checkpoint_seconds=0.0)
    assert [each.checkpoint_due() for each in (engine, patient, homeless)] == [True, False, False]
    for number, name in enumerate(("first", "second", "third")):
        for each in (engine, homeless):
            each.save_checkpoint(name, {"x": torch.tensor(number)}, {"number": number})
    tensors, about = make_engine().load_checkpoint("second") or ({}, {})
    assert (int(tensors["x"]), about["number"]) == (1, 1)
    engine.drop_checkpoints("second")
    assert [make_engine().load_checkpoint(name) is None for name in ("first", "second", "third")] == [True, False, True]
    homeless.drop_checkpoints()
    assert homeless.load_checkpoint("first") is homeless.checkpoint_path("first") is None


def test_a_checkpoint_puts_off_the_next(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Mock(return_value=100.0)
    monkeypatch.setattr("fscil.engine.engine.time.perf_counter", clock)
    engine = make_engine(checkpoint_seconds=20.0)
    due = []
    for clock.return_value in (110.0, 120.0, 139.0, 140.0):
        due.append(engine.checkpoint_due())
        if due[-1]:
            engine.save_checkpoint("practice", {}, {})
    assert due == [False, True, False, True]


def test_seeds_decide_about_dropout(make_stage: MakeStage) -> None:
    first, same_seed, other = make_stage(), make_stage(), make_stage()
    for seed, stage in ((1, first), (1, same_seed), (2, other)):
        Engine(seed=seed, console=Console(quiet=True)).train(stage)
    assert same(weights(first), weights(same_seed))
    assert not same(weights(first), weights(other))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_the_last_segment_may_be_shorter(make_stage: MakeStage, make_engine: MakeEngine, device: str) -> None:
    """Seven steps are seven steps, whether they come one, three or five at a time."""
    steps = {
        key: torch.cat([make_stage().prepare(segment)[key] for segment in range(3)])[:7] for key in ("images", "labels")
    }
    found = []
    for at_once in (1, 3, 5, 7):

        def prepare(segment: int, at_once: int = at_once) -> Batch:
            return {key: tensor[segment * at_once :][:at_once].to(device) for key, tensor in steps.items()}

        stage = make_stage(prepare=prepare, segments=-(-7 // at_once), steps=at_once)
        stage.module.get_submodule("dropout").eval()  # its seeds depend on the segments
        stage.module.to(device)
        engine = make_engine(f"run-{at_once}", device=torch.device(device))
        engine.train(stage)
        found.append(weights(stage))
        assert len(metrics(engine)) == stage.segments
    for other in found[1:]:
        assert all(torch.allclose(found[0][name], other[name], atol=1e-5) for name in other)
    assert device == "cuda" or all(same(found[0], other) for other in found[1:])


def test_a_diverging_loss_is_a_clear_error(make_stage: MakeStage, make_engine: MakeEngine) -> None:
    stage = make_stage()
    engine = make_engine()
    diverging = make_stage(loss=lambda batch: stage.loss(batch) * float("inf"))
    with pytest.raises(UserError, match=r"practice diverged in segment 1.*lower the learning rate"):
        engine.train(diverging)
    assert not (engine.checkpoint_path("stage-practice") or Path()).exists()  # nothing useless to resume from


def test_without_a_folder_nothing_is_written(
    make_stage: MakeStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Engine(console=Console(quiet=True)).train(make_stage())
    assert not list(tmp_path.iterdir())


def test_a_cpu_never_captures(make_stage: MakeStage, make_engine: MakeEngine) -> None:
    engine = make_engine(capture=True)
    engine.train(make_stage())
    assert engine.captured == [False]


@pytest.mark.parametrize("damage", ["cut", "empty", "garbage"])
def test_a_corrupt_checkpoint_is_a_clear_error(make_stage: MakeStage, make_engine: MakeEngine, damage: str) -> None:
    engine = make_engine()
    engine.train(make_stage())
    path = engine.checkpoint_path("stage-practice") or Path()
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "garbage": b"\xff" * 100}[damage])
    with pytest.raises(UserError, match=r"practice.safetensors cannot be read.*delete it") as caught:
        make_engine().train(make_stage())
    assert "\n" not in str(caught.value)


def test_a_checkpoint_of_something_else_is_a_clear_error(make_stage: MakeStage, make_engine: MakeEngine) -> None:
    path = make_engine().checkpoint_path("stage-practice") or Path()
    for tensors, about in (
        ({"module.other": torch.zeros(2)}, {"segments_done": 5, "seconds": 1.0, "captured": False}),
        ({}, {}),
    ):
        save_tensors(path, tensors, {**about, **OURS})
        with pytest.raises(UserError, match="does not fit its stage; delete it"):
            make_engine().train(make_stage())


OURS = {"name": "stage-practice", "run": "", "code": ""}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"name": "stage-trial-1-practice"}, "of other settings or other data"),
        ({"run": "another run"}, "of other settings or other data"),
        ({"code": "another version"}, "written by another version of fscil"),
        ({"segments_done": []}, "does not fit its stage"),
        ({"segments_done": "many"}, "does not fit its stage"),
        ({"segments_done": None}, "does not fit its stage"),
        ({"seconds": {}}, "does not fit its stage"),
    ],
)
def test_a_checkpoint_knows_its_run_its_stage_and_its_code(
    make_stage: MakeStage, make_engine: MakeEngine, other: dict[str, Any], message: str
) -> None:
    engine = make_engine()
    engine.train(make_stage())
    path = engine.checkpoint_path("stage-practice") or Path()
    tensors, about = load_tensors(path)
    make_engine().train(make_stage())  # as it is, it is taken up
    save_tensors(path, tensors, {**about, **other})
    with pytest.raises(UserError, match=message):
        make_engine().train(make_stage())


def test_a_single_flipped_bit_is_noticed(make_stage: MakeStage, make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.train(make_stage())
    path = engine.checkpoint_path("stage-practice") or Path()
    whole = path.read_bytes()
    for place in (len(whole) - 1, len(whole) // 2, 200):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UserError, match=r"cannot be read .*; delete it") as caught:
            make_engine().train(make_stage())
        assert "\n" not in str(caught.value)


def test_a_fifo_is_not_waited_for(make_stage: MakeStage, make_engine: MakeEngine) -> None:
    path = make_engine().checkpoint_path("stage-practice") or Path()
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(UserError, match="not a regular file"):
        make_engine().train(make_stage())


def test_a_checkpoint_of_another_run_is_refused(make_stage: MakeStage, make_engine: MakeEngine) -> None:
    make_engine(identity="mine").train(make_stage())
    with pytest.raises(UserError, match="is a checkpoint of other settings or other data"):
        make_engine(identity="another").train(make_stage())


def test_a_file_that_is_no_folder_is_a_clear_error(make_stage: MakeStage, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write"):
        Engine(folder=tmp_path / "file", console=Console(quiet=True)).train(make_stage())


def test_the_engine_reports_what_it_trains(make_stage: Callable[..., Stage]) -> None:
    screen = io.StringIO()
    Engine(console=Console(file=screen, force_terminal=True, width=100, _environ={"TERM": "xterm"})).train(make_stage())
    assert "practice (loss " in screen.getvalue()
    assert "5/5" in screen.getvalue()
    log = io.StringIO()
    Engine(console=Console(file=log)).train(make_stage())
    assert log.getvalue() == ""  # it is short
