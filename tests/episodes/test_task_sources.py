"""ImageTasks and EmbeddingTasks: how items are made, and that it does not matter which process makes them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from marked_images import make_session, see, unchanged
from torch import Tensor

from fscil.benchmark import Session
from fscil.distributed import collectives
from fscil.episodes import (
    KINDS,
    EmbeddingTasks,
    ImageTasks,
    TaskShape,
    blend_pool,
    class_members,
    embedding_tasks,
    images_of_step,
    sample_fake_tasks,
)
from fscil.episodes.image_tasks import task_images
from fscil.episodes.new_classes import blend, turn
from fscil.errors import UserError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("as_images", [False, True])
def test_tasks_follow_from_the_seed_alone(kind: str, as_images: bool) -> None:
    session, shape = make_session([8] * 6, 1), TaskShape(1, 2, 2, 1, kind)

    def sample(seed: int) -> Tensor:
        if as_images:
            return ImageTasks(session, shape, unchanged).sample(3, seed)["images"]
        return EmbeddingTasks(session, shape, unchanged, see, seed).sample(3, seed)["embeddings"]

    assert torch.equal(sample(1), sample(1))
    assert not torch.equal(sample(1), sample(2))


def test_a_blend_is_the_mean_of_its_parents() -> None:
    pair = torch.tensor([[0, 255, 10, 101], [100, 255, 20, 200]], dtype=torch.uint8).view(2, 1, 2, 2)
    expected = [50.0, 255.0, 15.0, 150.5]
    found = blend(pair, torch.zeros(()))
    assert all(abs(a - b) <= 0.5 for a, b in zip(found.flatten().tolist(), expected, strict=True))
    assert found.dtype == torch.uint8


def test_each_image_is_turned_by_its_own_angle() -> None:
    square = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).expand(4, 1, 3, 2, 2)
    found = turn(square, torch.tensor([0, 1, 2, 3]))
    assert found.shape == (4, 3, 2, 2)
    assert found[:, 0].tolist() == [[[1, 2], [3, 4]], [[2, 4], [1, 3]], [[4, 3], [2, 1]], [[3, 1], [4, 2]]]
    assert torch.equal(found[:, 0], found[:, 2])


@pytest.mark.parametrize("kind", ["base", "rotated"])
def test_embeddings_are_those_of_the_images(kind: str) -> None:
    """A blend is drawn from a pool; all other tasks are the same ones whether the encoder learns or not."""
    session, shape = make_session([8, 9, 12, 8, 10, 8], 1), TaskShape(2, 2, 2, 1, kind)
    images = ImageTasks(session, shape, unchanged).sample(3, 5)
    embeddings = EmbeddingTasks(session, shape, unchanged, see, 1).sample(3, 5)
    assert torch.equal(images["images"].flatten(2).float(), embeddings["embeddings"])
    assert torch.equal(images["old_classes"], embeddings["old_classes"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_takes_as_many_images_as_it_says(kind: str) -> None:
    session, shape = make_session([8] * 9, 1), TaskShape(2, 2, 2, 1, kind)
    taken = 0

    def count(images: Tensor, keys: Tensor) -> Tensor:
        nonlocal taken
        taken += len(images)
        return images

    ImageTasks(session, shape, count).sample(3, 1)
    assert taken == 3 * images_of_step(shape, 9)


@pytest.mark.parametrize("kind", KINDS)
def test_processes_together_have_the_items_of_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards may end in the middle of a class, and are augmented by their keys as in one process."""
    session, shape = make_session([8] * 9, 1), TaskShape(2, 2, 3, 1, kind)

    def shift(images: Tensor, keys: Tensor) -> Tensor:
        return images + (keys % 50).to(torch.uint8)[:, None, None, None]

    tasks = ImageTasks(session, shape, shift)
    whole = tasks.sample(3, 1)["images"]
    assert not torch.equal(whole, ImageTasks(session, shape, unchanged).sample(3, 1)["images"])
    monkeypatch.setattr(collectives, "world_size", lambda: 5)
    shares = []
    for rank in range(5):
        monkeypatch.setattr(collectives, "rank", lambda rank=rank: rank)
        shares.append(tasks.sample(3, 1)["images"])
    assert len({share.shape[1] for share in shares}) == 2  # uneven shards
    assert torch.equal(torch.cat(shares, 1), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_embeddings_do_not_depend_on_who_computes_which(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session, shape = make_session([8, 9, 8, 12, 8], 1), TaskShape(1, 2, 2, 1, kind)

    def sample() -> Tensor:
        return EmbeddingTasks(session, shape, unchanged, see, 1).sample(3, 5)["embeddings"]

    def in_shares(n: int, embed: Callable[[slice], Tensor]) -> Tensor:
        return torch.cat([embed(slice(n * rank // 4, n * (rank + 1) // 4)) for rank in range(4)])

    whole = sample()
    for module in (embedding_tasks, blend_pool):
        monkeypatch.setattr(module, "map_shards", in_shares)
    assert torch.equal(sample(), whole)


def test_task_images_are_the_means_of_the_sampled_pictures() -> None:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (24, 3, 4, 4), dtype=torch.uint8, generator=generator)
    session = Session(tuple(range(4)), images, torch.arange(4).repeat(6))
    members, counts = class_members(session.labels, 4)
    shape = TaskShape(1, 2, 2, 1, "mixed")
    tasks = sample_fake_tasks(members, counts, shape, 2, generator)
    found = task_images(tasks, shape, session, unchanged, 1)["images"]
    for step in range(2):
        pairs = [*tasks.supports[step].reshape(-1, 2).tolist()]
        for place, (a, b) in enumerate(pairs):
            mean = (images[a].double() + images[b].double()) / 2
            assert (found[step, place].double() - mean).abs().max() <= 0.5
        olds = tasks.old_queries[0][step].flatten().tolist()
        for place, i in enumerate(olds, start=len(pairs)):
            assert torch.equal(found[step, place], images[i])


def test_items_are_augmented() -> None:
    """Supports, old queries and blends all pass through the augmentation."""
    session, shape = make_session([6] * 5, 1), TaskShape(1, 2, 1, 1, "mixed")
    batch = ImageTasks(session, shape, lambda images, _: images // 2).sample(2, 1)
    assert set(batch["images"].flatten(2).amax(2).flatten().tolist()) == {50, 100}


def test_what_the_base_session_cannot_give_is_refused() -> None:
    with pytest.raises(UserError, match="lower fake_way"):
        ImageTasks(make_session([5] * 3, 1), TaskShape(1, 3, 1, 1), unchanged)
    with pytest.raises(UserError, match="lower fake_shot"):
        EmbeddingTasks(make_session([5] * 3, 1), TaskShape(1, 1, 5, 1), unchanged, see, 1)
