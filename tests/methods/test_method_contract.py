"""What every registered method promises, whatever its internals."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from torch import Tensor

import example_package
from fscil import api, methods
from fscil.benchmark import Benchmark, Session
from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.errors import UserError
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


class Peeking(methods.get("decoupled-cosine")):  # type: ignore[misc]
    """Trains on what has not arrived yet."""

    def check_sessions(self, sessions: Sequence[Session]) -> None:
        self.peeked = self.look(sessions[1].images)

    @staticmethod
    def look(images: Tensor) -> Tensor:
        return images[0]


@pytest.mark.parametrize(
    "look", [lambda images: images[0], lambda images: images.float(), lambda images: list(images)], ids=range(3)
)
def test_who_asks_for_images_that_have_not_arrived_is_refused(
    look: Callable[[Tensor], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(methods.METHODS, "decoupled-cosine", Peeking)
    monkeypatch.setattr(Peeking, "look", staticmethod(look))
    with pytest.raises(UserError, match="images of a session can be seen when it is learned, not before"):
        api.run("decoupled-cosine", "digits", epochs=1, out=tmp_path / "run", device="cpu")


class Hoarding(methods.get("decoupled-cosine")):  # type: ignore[misc]
    """Keeps a session beyond its memory, which is none, and goes back to it."""

    def learn_base(self, session: Session) -> None:
        super().learn_base(session)
        self.kept = session

    def learn_session(self, session: Session) -> None:
        super().learn_session(session)
        assert session.images[0].shape == session.images.shape[1:]
        self.kept.images[0]


def test_who_asks_for_images_of_an_earlier_session_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(methods.METHODS, "decoupled-cosine", Hoarding)
    with pytest.raises(UserError, match=r"while it is learned, not later; keep exemplars in self\.memory"):
        api.run("decoupled-cosine", "digits", epochs=1, out=tmp_path / "run", device="cpu")


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


def test_unknown_method_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'limmit'.*did you mean 'limit'"):
        methods.get("limmit")


def test_other_packages_add_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = EntryPoint("mine", "fscil.methods.finetune:Finetune", "fscil.methods")

    def points(group: str, name: str = "mine") -> list[EntryPoint]:
        return [mine] if (group, name) == ("fscil.methods", "mine") else []

    monkeypatch.setattr(methods, "entry_points", points)
    assert "mine" in methods.names()
    assert methods.get("mine") is methods.METHODS["finetune"]


def test_a_file_among_the_methods_is_a_method(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No other file names it. The helpers of methods are no methods."""
    (tmp_path / "soft_labels.py").write_text(example_package.files()["rehearsal.py"])
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    found = methods.built_in()
    monkeypatch.delitem(sys.modules, "fscil.methods.soft_labels")
    assert found.keys() - methods.METHODS.keys() == {"soft-labels"}
    assert found["soft-labels"].__name__ == "Rehearsal"


def test_decoupled_cosine_compares_with_class_means(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("decoupled-cosine", benchmark)
    (*_, logits) = learn(method, benchmark)
    queries = method.embed(benchmark.test_images).double()
    for session in benchmark.sessions:
        for label in session.classes:
            mean = method.embed(session.images[session.labels == label]).double().mean(0)
            cosine = (queries @ mean) / (queries.norm(dim=1) * mean.norm())
            assert torch.allclose(logits[:, label].double(), method.settings.scale * cosine, atol=1e-4)


@pytest.mark.parametrize("name", ["decoupled-cosine", "limit"])
def test_a_power_evens_out_the_features(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    benchmark = tiny_benchmark()
    method = make_method(name, benchmark, power=0.5)
    method.learn_base(benchmark.sessions[0])
    method.learn_session(benchmark.sessions[1])
    features = method.model.encoder.embed(benchmark.test_images)
    assert (features >= 0).all()
    assert torch.allclose(method.embed(benchmark.test_images) ** 2, features, atol=2e-3)
    new = benchmark.sessions[1]
    for label in new.classes:  # prototypes are means of what is compared with them
        expected = method.embed(new.images[new.labels == label]).mean(0)
        assert torch.allclose(method.state()["rows"][label], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["decoupled-cosine", "limit"])
def test_a_mirrored_embedding_is_the_mean_over_both_images(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    benchmark = tiny_benchmark()
    method = make_method(name, benchmark, mirror=True, power=0.5)
    method.learn_base(benchmark.sessions[0])
    images = benchmark.test_images
    method.model.mirror = False
    both = (method.embed(images) + method.embed(images.flip(-1))) / 2
    assert not torch.allclose(method.embed(images), both, atol=1e-4)
    method.model.mirror = True
    assert torch.allclose(method.embed(images), both, atol=1e-5)


def moved(image: Tensor, pixels: int) -> Tensor:
    """[3, h, w], moved to the right and down by this many pixels; black moves in."""
    found, (_, height, width) = torch.zeros_like(image), image.shape
    for y in range(height):
        for x in range(width):
            if 0 <= y - pixels < height and 0 <= x - pixels < width:
                found[:, y, x] = image[:, y - pixels, x - pixels]
    return found


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("shift", [1, 3])
def test_a_shifted_embedding_is_the_mean_over_moved_copies(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], shift: int, mirror: bool
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("decoupled-cosine", benchmark, shift=shift, mirror=mirror, power=0.5, whiten=1.0)
    method.learn_base(benchmark.sessions[0])
    A, images = method.state()["whitening"], benchmark.test_images[::5]
    found = method.embed(images)
    torch.testing.assert_close(method.model(images), method.classify(found))  # and so do exported models
    for image, embedding in zip(images, found, strict=True):
        views = [moved(each, by) for each in ([image, image.flip(-1)] if mirror else [image]) for by in (shift, -shift)]
        features = [method.model.encoder.embed(view[None])[0].clamp(min=1e-3).sqrt() for view in views]
        torch.testing.assert_close(embedding, sum(features) / len(features) @ A, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["decoupled-cosine", "limit"])
def test_shifts_that_leave_nothing_of_an_image_are_refused(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    sessions = tiny_benchmark(size=8).sessions
    make_method(name, tiny_benchmark(), shift=7).check_sessions(sessions)
    with pytest.raises(UserError, match=r"^shift=8 moves images of 8 pixels out of sight; lower it$"):
        make_method(name, tiny_benchmark(), shift=8).check_sessions(sessions)


def test_the_new_rows_of_finetune_start_at_random(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("finetune", benchmark, session_lr=0.0)
    method.learn_base(benchmark.sessions[0])
    method.learn_session(benchmark.sessions[1])
    first, second = method.state()["rows"][4:]
    assert not torch.equal(first, second)
    assert 0 < float(first.norm()) < 0.1


def test_finetune_trains_every_layer_on_the_new_images_alone(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("finetune", benchmark, session_epochs=3)
    method.learn_base(benchmark.sessions[0])
    before = {name: tensor.clone() for name, tensor in method.state().items()}
    method.learn_session(benchmark.sessions[1])
    after = method.state()
    assert all(not torch.equal(before[n], after[n]) for n in before if n.endswith("weight") and "encoder" in n)
    assert not torch.equal(after["rows"][:4], before["rows"])
