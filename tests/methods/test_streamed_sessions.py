"""Methods give the same numbers with streamed images as with images in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fscil.benchmark import Benchmark
from fscil.datasets import decode, folder
from fscil.engine import Engine
from fscil.images import StreamedImages
from fscil.methods import Method
from fscil.protocol import run_protocol
from run_helpers import every_method

MakeMethod = Callable[..., Method]
SIZE = 8
IMAGE = 3 * SIZE * SIZE  # bytes


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")


def load(photos: Path, stream: str) -> Benchmark:
    return folder.load(folder.FolderOptions(path=str(photos), way=2, shot=2, size=SIZE, stream=stream))


def nothing(session: int, predictions: Tensor) -> None:
    pass


def learned(make_method: MakeMethod, name: str, benchmark: Benchmark, segment_bytes: int, **settings: Any) -> Method:
    engine = Engine(segment_bytes=segment_bytes, console=Console(quiet=True))
    method = make_method(name, benchmark, engine=engine, **settings)
    method.learn_base(benchmark.sessions[0])
    return method


def assert_same(one: Method, two: Method) -> None:
    mine, theirs = one.state(), two.state()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *every_method({}),
        ("limit", {"encoder_lr": 0, "fake_classes": "base", "mirror": True}),
        pytest.param("limit", {"encoder_lr": 0, "fake_classes": "mixed", "rows": "trained"}, marks=pytest.mark.slow),
        ("limit", {"calibrator": "paired", "rows": "means", "shift": 1, "whiten": 1.0}),
        pytest.param("limit", {"tasks": "plain"}, marks=pytest.mark.slow),
    ],
)
def test_streamed_images_give_the_same_numbers(
    photo_folder: Callable[..., Path], make_method: MakeMethod, name: str, settings: dict[str, Any]
) -> None:
    photos = photo_folder(classes=7, images=12)
    found = []
    for stream in ("never", "always"):
        benchmark = load(photos, stream)
        assert isinstance(benchmark.sessions[0].images, StreamedImages) == (stream == "always")
        method = learned(make_method, name, benchmark, 8 * IMAGE, epochs=2, batch=4, **settings)
        found.append((method, run_protocol(method, benchmark, 2, nothing)))
    (resident, of_resident), (streamed, of_streamed) = found
    assert_same(resident, streamed)
    assert all(torch.equal(of_resident[t].predictions, of_streamed[t].predictions) for t in (1, 2, 0))


@pytest.mark.parametrize("steps", [1, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (2, 3, 4)), 5])
def test_how_an_epoch_is_cut_changes_no_number(
    photo_folder: Callable[..., Path], make_method: MakeMethod, steps: int
) -> None:
    """Ten steps an epoch, three epochs: some parts reach into the next epoch, and the last one may be shorter."""
    benchmark = load(photo_folder(classes=7, images=13), "always")
    assert len(benchmark.sessions[0].labels) == 40
    settings = {"epochs": 3, "batch": 4, "warmup": 1}
    whole = learned(make_method, "decoupled-cosine", benchmark, 2**20, **settings)
    in_parts = learned(make_method, "decoupled-cosine", benchmark, steps * 4 * IMAGE, **settings)
    assert_same(whole, in_parts)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file is decoded."""
    count: Counter[str] = Counter()
    decode_one = decode.decode

    def counting(data: bytes, size: int, name: str) -> NDArray[np.uint8]:
        count[name] += 1
        return decode_one(data, size, name)

    monkeypatch.setattr(decode, "decode", counting)
    return count


def test_an_image_is_decoded_once_an_epoch(
    photo_folder: Callable[..., Path], make_method: MakeMethod, decoded: Counter[str]
) -> None:
    """Exactly what is prefetched is used."""
    benchmark = load(photo_folder(classes=7, images=13), "always")
    assert sorted(decoded.values()) == [1] * 40  # of the base session, to normalise by
    decoded.clear()
    learned(make_method, "decoupled-cosine", benchmark, 12 * IMAGE, epochs=3, batch=4, rows="trained")
    assert sorted(decoded.values()) == [3] * 40


def test_the_next_segment_is_read_while_this_one_is_learned(
    photo_folder: Callable[..., Path], make_method: MakeMethod, recording_engine: Any, decoded: Counter[str]
) -> None:
    benchmark = load(photo_folder(classes=7, images=13), "always")
    decoded.clear()
    recording_engine.segment_bytes = 12 * IMAGE
    make_method("decoupled-cosine", benchmark, engine=recording_engine, batch=4, rows="trained").learn_base(
        benchmark.sessions[0]
    )
    (stage,) = recording_engine.stages
    assert [len(stage.prepare(segment)["labels"]) for segment in range(stage.segments)] == [3, 3, 3, 1]
    assert sum(decoded.values()) == 40
    images = benchmark.sessions[0].images
    assert isinstance(images, StreamedImages)
    assert images.prefetched is None  # after the last segment there is nothing to read
    decoded.clear()
    stage.prepare(2)
    assert images.prefetched is not None
    images.prefetched.result()
    assert sum(decoded.values()) == 12 + 4


class LargestBatch(TorchDispatchMode):
    """The most images that any tensor held."""

    images = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.dtype == torch.uint8 and out.shape[-3:] == (3, SIZE, SIZE):
            self.images = max(self.images, out.numel() // IMAGE)
        return out


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"fake_classes": "mixed"}, 2),
        ({"fake_classes": "base"}, 4),
        ({"fake_classes": "mixed", "encoder_lr": 0}, 3),  # of 15 embeddings of 64 float32 each
        ({"tasks": "plain", "batch": 30}, 2),
    ],
)
def test_fake_tasks_take_no_more_memory_than_they_may(
    photo_folder: Callable[..., Path], make_method: MakeMethod, recording_engine: Any, settings: Any, steps: int
) -> None:
    """A step of two phases on four base classes has 4 supports and 3 new queries.

    Base classes leave 2 x 2 old queries beside them; blends, of two images each, leave 2 x 4.
    """
    benchmark = load(photo_folder(classes=7, images=13), "always")
    recording_engine.segment_bytes = 60 * IMAGE
    method = make_method(
        "limit", benchmark, engine=recording_engine, rows="trained", meta_steps=7, meta_batch_steps=50, **settings
    )
    method.learn_base(benchmark.sessions[0])
    stage = recording_engine.stages[-1]
    assert (stage.name, stage.steps) == ("meta-train", steps)
    with LargestBatch() as largest:
        stage.prepare(0)
    assert largest.images <= 60


@pytest.mark.parametrize(("epochs", "parts"), [(1, [1] * 7), (2, [2, 2, 2, 1]), (3, [3, 3, 1]), (6, [4, 3]), (7, [7])])
def test_finetuning_is_cut_to_the_memory_it_may_take_and_changes_no_number(
    photo_folder: Callable[..., Path], make_method: MakeMethod, recording_engine: Any, epochs: int, parts: list[int]
) -> None:
    """Seven epochs of a session's four images, with room for a few epochs at a time."""
    benchmark = load(photo_folder(classes=7, images=6), "always")
    base, session, *_ = benchmark.sessions
    settings: dict[str, Any] = {"session_epochs": 7, "session_decay_epoch": 5}
    whole = learned(make_method, "finetune", benchmark, 2**20, **settings)
    in_parts = learned(make_method, "finetune", benchmark, epochs * 4 * IMAGE + 1, **settings)
    for method in (whole, in_parts):
        method.learn_session(session)
    assert_same(whole, in_parts)

    recording_engine.segment_bytes = in_parts.engine.segment_bytes
    method = make_method("finetune", benchmark, engine=recording_engine, **settings)
    method.learn_base(base)
    method.learn_session(session)
    stage = recording_engine.stages[-1]
    with LargestBatch() as largest:
        assert [len(stage.prepare(segment)["labels"]) for segment in range(stage.segments)] == parts
    assert largest.images <= epochs * 4


@pytest.mark.parametrize("stream", ["always", "never"])
def test_memory_does_not_grow_with_the_data(
    photo_folder: Callable[..., Path], make_method: MakeMethod, stream: str
) -> None:
    photos = photo_folder(classes=3, images=800, size=SIZE)
    with LargestBatch() as largest:
        benchmark = load(photos, stream).to("cpu")
        method = learned(make_method, "decoupled-cosine", benchmark, 128 * IMAGE, batch=64)
        method.embed(benchmark.test_images)
    assert (len(benchmark.sessions[0].labels), len(benchmark.test_labels)) == (640, 480)
    # the encoder's batches are of 512; all images of the folder are 2400
    assert largest.images == {"always": 512, "never": 2400}[stream]
