"""What a method carries from session to session is its state, and nothing else; base training may be repeated."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

import example_package as example
from fscil import methods, runs
from fscil.benchmark import Benchmark, Session
from fscil.config import resolve
from fscil.errors import UserError
from fscil.methods import Method
from fscil.methods.pretrain import COSINE, Objective, PretrainSettings, pretrain
from fscil.protocol import learn_base, run_protocol, snapshot
from fscil.settings import setting

MakeMethod = Callable[..., Method]
BUILT_IN = list(methods.names())


@dataclass(frozen=True)
class RetrainedSettings(PretrainSettings):
    memory: str = setting("all", "exemplars")


class Retrained(Method):
    """All data seen so far, trained on again in every session: the base training, several times in a run."""

    Settings: ClassVar[type] = RetrainedSettings
    fixed_encoder: ClassVar[bool] = False

    def learn_base(self, session: Session) -> None:
        self.learn_session(session)

    def learn_session(self, session: Session) -> None:
        self.memory.keep(session)
        everything = Session(tuple(range(int(self.memory.labels.max()) + 1)), self.memory.images, self.memory.labels)
        self.model = pretrain(everything, self.settings, self.context, name=f"joint-{len(everything.classes)}")


@pytest.fixture(autouse=True)
def more_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRIBUTING's method with exemplars and a teacher, and joint training, beside the built-in ones."""
    module = types.ModuleType("rehearsal")
    monkeypatch.setitem(sys.modules, "rehearsal", module)
    exec(compile(example.files()["rehearsal.py"], "rehearsal.py", "exec"), module.__dict__)
    monkeypatch.setitem(methods.METHODS, "rehearsal", module.Rehearsal)
    monkeypatch.setitem(methods.METHODS, "retrained", Retrained)
    monkeypatch.setenv("FSCIL_CACHE", "off")


def nothing(session: int, predictions: Tensor) -> None:
    pass


every_method = pytest.mark.parametrize("name", [*BUILT_IN, "rehearsal", "retrained"])


@every_method
def test_a_new_object_goes_on_from_the_state_and_no_session_is_there_any_more(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    """After every session the method is replaced by one that knows its state alone, and the images are blanked."""
    expected = make_method(name, tiny_benchmark())
    method = make_method(name, tiny_benchmark())
    for i, (session, lent) in enumerate(zip(tiny_benchmark().sessions, tiny_benchmark().sessions, strict=True)):
        (expected.learn_session if i else expected.learn_base)(session)
        (method.learn_session if i else method.learn_base)(lent)
        lent.images.zero_()
        kept = snapshot(method)
        method = make_method(name, tiny_benchmark())
        method.load_state(*kept)
        images = tiny_benchmark().test_images
        assert torch.equal(method.logits(images), expected.logits(images))
    assert method.state().keys() == expected.state().keys()


@pytest.mark.parametrize(("name", "exemplars"), [("rehearsal", 5 * 4 + 2 * 2 + 3), ("retrained", 4 * 8 + 2 * 2 + 3)])
def test_trials_start_with_the_memory_of_the_base_session(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str, exemplars: int
) -> None:
    benchmark = tiny_benchmark()
    method = make_method(name, benchmark)
    method.learn_base(benchmark.sessions[0])
    found = run_protocol(method, benchmark, 2, nothing)
    assert torch.equal(found[1].predictions, found[0].predictions)  # the first draw is the standard one
    assert len(method.memory) == exemplars


def test_rehearsal_learns_from_exemplars_and_from_its_teacher(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark()
    rows = []
    for settings in ({}, {"memory": "none"}, {"distillation": 0.0}):
        method = make_method("rehearsal", benchmark, **settings)
        method.learn_base(benchmark.sessions[0])
        method.learn_session(benchmark.sessions[1])
        rows.append(method.state()["rows"].clone())
    assert not torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])


def learned(method: Method, session: Session, **options: Any) -> Any:
    return pretrain(session, method.settings, method.context, **options)


def test_base_training_takes_another_loss_and_a_model_to_start_from(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    """As FACT would: virtual rows beside the real ones, and a loss of its own."""
    session = tiny_benchmark().sessions[0]
    plain = learned(make_method("decoupled-cosine", tiny_benchmark()), session)
    smoothed = Objective(
        "smoothed",
        COSINE.forward,
        lambda model, e, batch: F.cross_entropy(model.calibrator(model.rows, e), batch["labels"], label_smoothing=0.2),
    )
    other = learned(make_method("decoupled-cosine", tiny_benchmark()), session, objective=smoothed)
    assert not torch.equal(other.rows, plain.rows)
    start = plain.frozen_copy().requires_grad_(True)
    start.add_rows(torch.randn(3, 64))
    further = learned(make_method("decoupled-cosine", tiny_benchmark()), session, start=start, name="further")
    assert further is start
    assert further.rows.shape == (7, 64)
    assert not torch.equal(further.rows[:4], plain.rows)


def test_objectives_names_and_sessions_have_encoders_of_their_own_in_the_cache(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FSCIL_CACHE", str(tmp_path))
    benchmark = tiny_benchmark()
    base, later = benchmark.sessions[:2]
    relabelled = Session(tuple(range(2)), later.images, later.labels - 4)

    def cached(session: Session, **options: Any) -> bool:
        method = make_method("decoupled-cosine", benchmark)
        learned(method, session, **options)
        return method.engine.seconds[options.get("name", "pretrain")]["cached"]

    other = Objective("other", COSINE.forward, COSINE.loss)
    variants: list[tuple[Session, dict[str, Any]]] = [
        (base, {}), (base, {"name": "again"}), (base, {"objective": other}), (relabelled, {})
    ]  # fmt: skip
    assert [cached(session, **options) for session, options in variants] == [False] * 4
    assert [cached(session, **options) for session, options in variants] == [True] * 4


def test_a_method_that_forgets_to_add_rows_is_told_so(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("decoupled-cosine", benchmark)
    method.learn_base(benchmark.sessions[0])
    monkeypatch.setattr(method, "learn_session", lambda session: None)
    with pytest.raises(UserError, match="has 4 rows after 6 classes have arrived; learn_session must add one"):
        run_protocol(method, benchmark, 0, nothing)


def test_an_objective_may_read_any_setting_of_its_method(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So encoders that differ in such a setting alone are not the same; ours reads those of pre-training alone."""
    monkeypatch.setenv("FSCIL_CACHE", str(tmp_path))
    benchmark = tiny_benchmark()
    mine = Objective("mine", COSINE.forward, COSINE.loss)

    def cached(objective: Objective, distillation: float) -> bool:
        method = make_method("rehearsal", benchmark, distillation=distillation)
        learned(method, benchmark.sessions[0], objective=objective)
        return method.engine.seconds["pretrain"]["cached"]

    assert [cached(mine, 0.0), cached(mine, 0.5), cached(mine, 0.0)] == [False, False, True]
    assert [cached(COSINE, 0.0), cached(COSINE, 0.5)] == [False, True]


def test_an_objective_typed_into_a_notebook_is_trained_but_not_cached(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FSCIL_CACHE", str(tmp_path))
    typed = eval(compile("lambda model, images: model.encoder(images)", "<stdin>", "eval"))
    for _ in range(2):
        method = make_method("decoupled-cosine", tiny_benchmark())
        learned(method, tiny_benchmark().sessions[0], objective=Objective("typed", typed, COSINE.loss))
        assert not method.engine.seconds["pretrain"]["cached"]


@every_method
def test_nothing_stays_frozen_so_a_loaded_method_trains_what_a_living_one_does(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    benchmark = tiny_benchmark()
    method = make_method(name, benchmark)
    learn_base(method, benchmark, base_margin=0.5)
    assert all(parameter.requires_grad for parameter in method.model.parameters())
    assert not method.model.training
    assert method.model.base_margin == 0.5


def test_a_budget_that_is_too_small_is_refused_before_anything_is_trained(tiny_dataset: str, tmp_path: Path) -> None:
    config = resolve("rehearsal", tiny_dataset, ["memory=6"])
    with pytest.raises(UserError, match="memory=6 is less than one image for each of 7 classes"):
        runs.start(config, runs.RunEnvironment(torch.device("cpu"), tmp_path / "run"), Console(quiet=True))
    assert not (tmp_path / "run").exists()
