"""Pre-training with turned images as classes of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fscil.benchmark import Benchmark
from fscil.errors import UserError
from fscil.methods import Method
from fscil.methods.turned import turns

MakeMethod = Callable[..., Method]
B = 4  # base classes of the tiny benchmark


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_a_share_of_every_step_is_turned_in_all_three_ways(share: float) -> None:
    k = turns(96, share)
    assert (k > 0).sum() == round(96 * share)
    assert set(k.bincount()[1:].tolist()) <= {round(96 * share) // 3, -(-round(96 * share) // 3)}


def test_turned_images_are_numpys_and_have_classes_of_their_own(
    make_method: MakeMethod, recording_engine: Any, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark()
    base = benchmark.sessions[0]
    method = make_method(
        "decoupled-cosine", benchmark, engine=recording_engine, turned=0.5, augmentation="none", batch=len(base.labels)
    )
    method.learn_base(base)
    (stage,) = recording_engine.stages
    batch = {name: tensor[0] for name, tensor in stage.prepare(0).items()}
    known = {
        np.rot90(image.numpy(), k, (1, 2)).tobytes(): int(label) + k * B
        for image, label in zip(base.images, base.labels, strict=True)
        for k in range(4)
    }
    assert [known[image.numpy().tobytes()] for image in batch["images"]] == batch["labels"].tolist()
    assert set((batch["labels"] // B).tolist()) == {0, 1, 2, 3}
    assert (batch["labels"] < B).sum() == len(base.labels) // 2


def test_their_rows_are_trained_and_then_removed(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The encoder also learns turns: told apart by 16 rows, upright images end elsewhere than with 4."""
    monkeypatch.setenv("FSCIL_CACHE", "off")
    benchmark, rows = tiny_benchmark(), []
    for share in (0.0, 0.5):
        method = make_method("decoupled-cosine", benchmark, turned=share, epochs=2, rows="trained")
        method.learn_base(benchmark.sessions[0])
        assert method.model.base.tolist() == [True] * B
        assert method.classify(method.embed(benchmark.test_images)).shape[1] == B
        rows.append(method.model.rows.detach())
    assert rows[0].shape == rows[1].shape
    assert not torch.allclose(rows[0], rows[1])


@pytest.mark.parametrize(("batch", "share", "turned"), [(8, 0.25, 2), (2, 0.75, 2), (1, 0.5, 1)])
def test_steps_in_which_a_turn_never_occurs_are_refused(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], batch: int, share: float, turned: int
) -> None:
    benchmark = tiny_benchmark()
    with pytest.raises(UserError, match=rf"turned={share} turns {turned} of a step's {batch} images"):
        make_method("decoupled-cosine", benchmark, turned=share, batch=batch).learn_base(benchmark.sessions[0])


def test_a_method_with_another_loss_refuses_it(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark()
    with pytest.raises(UserError, match=r"turned is for pre-training with cross-entropy alone; set turned=0"):
        make_method("fact", benchmark, turned=0.5).learn_base(benchmark.sessions[0])
