"""What every registered method promises, whatever its internals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fscil import methods
from fscil.benchmark import Benchmark, Session
from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.methods import Method
from fscil.methods.memory import parse_budget
from fscil.model import ModelSpec

MakeMethod = Callable[..., Method]
every_method = pytest.mark.parametrize("name", methods.names())


def learn(method: Method, benchmark: Benchmark) -> list[Tensor]:
    """Logits of all test images after every session, whose images are out of sight by then."""
    found = []
    for i, session in enumerate(benchmark.sessions):
        with session.lent() as lent:
            (method.learn_session if i else method.learn_base)(lent)
        found.append(method.logits(benchmark.test_images))
    return found


@every_method
def test_logits_cover_the_classes_seen_so_far(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    benchmark = tiny_benchmark(ways=(2, 1), shots=(3, 1))
    for i, logits in enumerate(learn(make_method(name, benchmark), benchmark)):
        assert logits.shape == (len(benchmark.test_labels), benchmark.seen(i))
        assert logits.dtype == torch.float32
        assert logits.isfinite().all()
        assert not logits.requires_grad


@every_method
def test_sessions_to_come_are_announced_without_their_images(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    """A method may know how many classes will come; images of theirs change nothing before they are taught."""
    benchmark = tiny_benchmark()
    logits = []
    for sessions in ([session.announced() for session in benchmark.sessions], benchmark.sessions):
        method = make_method(name, benchmark)
        method.check_sessions(sessions)
        logits.append(learn(method, benchmark)[-1])
    assert torch.equal(*logits)


@every_method
def test_a_new_class_is_answered_by_the_number_under_which_it_arrived(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    """Shots of colours as different as these are told apart by their own columns of the logits."""
    benchmark = tiny_benchmark(ways=(3,), shots=(5,), images=16)
    known = {field.name for field in dataclasses.fields(methods.get(name).Settings)}
    longer = {"session_epochs": 100, "session_lr": 0.05} if "session_epochs" in known else {}
    method = make_method(name, benchmark, epochs=12, augmentation="none", warmup=2, **longer)
    learn(method, benchmark)
    shots = benchmark.sessions[1]
    answers = method.logits(shots.images)[:, list(shots.classes)].argmax(1) + shots.classes[0]
    assert float((answers == shots.labels).float().mean()) > 0.6  # chance is 0.33


@every_method
def test_logits_are_the_classification_of_the_embeddings(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    benchmark = tiny_benchmark()
    method = make_method(name, benchmark)
    (*_, logits) = learn(method, benchmark)
    embeddings = method.embed(benchmark.test_images)
    assert embeddings.ndim == 2
    assert torch.allclose(method.classify(embeddings), logits, atol=1e-5)


@every_method
def test_state_is_plain_tensors_and_all_there_is(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], tmp_path: Path, name: str
) -> None:
    """A new object that loads a state and a spec, both from a file, predicts and keeps learning bit for bit."""
    benchmark = tiny_benchmark()
    base, session, following = benchmark.sessions
    method, fresh = make_method(name, benchmark), make_method(name, benchmark)
    method.learn_base(base)
    method.learn_session(session)
    assert all(type(tensor) in (Tensor, torch.nn.Parameter) for tensor in method.state().values())
    save_tensors(tmp_path / "state.safetensors", method.state(), {"model": dataclasses.asdict(method.model.spec)})
    kept, about = load_tensors(tmp_path / "state.safetensors")
    assert kept.keys() == method.state().keys()
    assert all(torch.equal(kept[key], tensor) for key, tensor in method.state().items())
    assert ModelSpec.from_json(about["model"]) == method.model.spec
    fresh.load_state(ModelSpec.from_json(about["model"]), kept)
    assert fresh.state().keys() == kept.keys()
    assert torch.equal(fresh.logits(benchmark.test_images), method.logits(benchmark.test_images))
    for each in (method, fresh):
        each.learn_session(following)
    assert torch.equal(fresh.logits(benchmark.test_images), method.logits(benchmark.test_images))


@every_method
def test_a_seed_decides_everything(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")
    benchmark = tiny_benchmark()
    first = learn(make_method(name, benchmark, seed=3), benchmark)
    torch.rand(5)  # what happens elsewhere must not matter
    again = learn(make_method(name, benchmark, seed=3), benchmark)
    other = learn(make_method(name, benchmark, seed=4), benchmark)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


@every_method
def test_learning_does_not_depend_on_being_asked(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    benchmark = tiny_benchmark()
    asked = learn(make_method(name, benchmark), benchmark)[-1]
    silent = make_method(name, benchmark)
    silent.learn_base(benchmark.sessions[0])
    for session in benchmark.sessions[1:]:
        torch.rand(3)  # nor on what anybody else draws
        silent.learn_session(session)
    assert torch.equal(silent.logits(benchmark.test_images), asked)


@every_method
def test_nothing_valid_is_refused(make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str) -> None:
    """Classes of unequal size, a batch larger than the base session, one class of one image, one query."""
    benchmark = tiny_benchmark(ways=(1, 1), shots=(1, 2))
    base = benchmark.sessions[0]
    kept = torch.nonzero((base.labels != 2) | (torch.arange(len(base.labels)) % 2 == 0)).flatten()
    method = make_method(name, benchmark, batch=1000)
    method.learn_base(Session(base.classes, base.images[kept], base.labels[kept]))
    for session in benchmark.sessions[1:]:
        method.learn_session(session)
    assert method.logits(benchmark.test_images[:1]).shape == (1, 6)
    assert method.logits(benchmark.test_images[:0]).shape == (0, 6)


@every_method
def test_colours_are_learned(make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str) -> None:
    """After a few epochs the easiest of benchmarks is far above chance in its base session."""
    benchmark = tiny_benchmark(images=16, test_images=8)
    method = make_method(name, benchmark, epochs=12, augmentation="none", warmup=2)
    method.learn_base(benchmark.sessions[0])
    images, labels = benchmark.test(0)
    assert float((method.logits(images).argmax(1) == labels).float().mean()) > 0.6  # chance is 0.25


@every_method
def test_memory_and_parameters_are_declared(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    benchmark = tiny_benchmark()
    method = make_method(name, benchmark)
    assert isinstance(method.fixed_encoder, bool)
    of_class, in_all = parse_budget(method.memory.budget)
    assert all(bound is None or bound >= 0 for bound in (of_class, in_all))
    assert len(method.memory) == 0
    learn(method, benchmark)
    method.memory.check(len(benchmark.class_names))
    if (of_class, in_all) == (0, 0):
        assert len(method.memory) == method.state()["memory.images"].numel() == 0
    assert isinstance(method.training_only_parameters(), int)
    assert method.training_only_parameters() >= 0


@pytest.mark.parametrize(
    ("name", "settings", "held"),
    [
        ("decoupled-cosine", {}, []),
        ("eeil", {}, []),
        ("icarl", {"classifier": "nme", "memory": "3/class"}, ["rows"]),  # the trained rows, beside nearest means
        ("topic", {}, ["m", "variances"]),
    ],
)
def test_what_only_later_sessions_need_is_counted(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str, settings: dict, held: list[str]
) -> None:
    benchmark = tiny_benchmark()
    method = make_method(name, benchmark, **settings)
    learn(method, benchmark)
    state = method.state()
    least = sum(state[f"tensors.{each}"].numel() for each in held)
    assert least <= method.training_only_parameters() <= 2 * least
    assert bool(least) == bool(held)


def test_fixed_encoders_are_fixed(make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]) -> None:
    """run_sessions embeds test images only once if the method allows it."""
    benchmark = tiny_benchmark()
    for name in methods.names():
        method = make_method(name, benchmark)
        method.learn_base(benchmark.sessions[0])
        before = method.embed(benchmark.test_images)
        method.learn_session(benchmark.sessions[1])
        assert torch.equal(method.embed(benchmark.test_images), before) == method.fixed_encoder, name
