"""CEC's pseudo-incremental tasks: every item is traced back to the image that it is made of."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from marked_images import made_of, make_session, see, unchanged
from torch import Tensor

from fscil.benchmark import Session
from fscil.distributed import collectives
from fscil.episodes import PseudoEmbeddingTasks, PseudoImageTasks, PseudoShape, embedding_tasks
from fscil.errors import UserError


@settings(max_examples=60, deadline=None)
@given(
    way=st.integers(1, 4), shot=st.integers(1, 3), queries=st.integers(1, 3), more=st.integers(0, 2),
    seed=st.integers(0, 2**16), as_images=st.booleans(),
)  # fmt: skip
def test_every_class_has_its_images_and_the_same_ones_turned_by_one_angle(
    way: int, shot: int, queries: int, more: int, seed: int, as_images: bool
) -> None:
    session, shape = (
        make_session([shot + queries + i % 3 for i in range(way + more)], seed),
        PseudoShape(way, shot, queries),
    )
    if as_images:
        steps = PseudoImageTasks(session, shape, unchanged).sample(3, seed)["images"]
    else:
        steps = PseudoEmbeddingTasks(session, shape, unchanged, see, seed).sample(3, seed)["embeddings"]
    assert steps.shape[:2] == (3, 2 * way * (shot + queries))
    for step in steps:
        classes = []
        for items in step.view(way, shot + queries, 2, -1):
            originals, copies = [made_of(pair[0]) for pair in items], [made_of(pair[1]) for pair in items]
            assert [images for images, _ in originals] == [images for images, _ in copies]
            assert len({images for images, _ in originals}) == shot + queries  # no query is a support
            assert {turns for _, turns in originals} == {0}
            (angle,) = {turns for _, turns in copies}
            assert angle in (1, 2, 3)
            (label,) = {int(session.labels[image]) for (image,), _ in originals}
            classes.append(label)
        assert len(set(classes)) == way


def test_all_classes_angles_and_images_are_drawn() -> None:
    session, shape = make_session([4, 6, 5], 1), PseudoShape(1, 1, 1)
    steps = PseudoImageTasks(session, shape, unchanged).sample(300, 1)["images"]
    drawn = [(made_of(step[0])[0], made_of(step[1])[1]) for step in steps]
    assert {images for images, _ in drawn} == {(i,) for i in range(15)}
    assert {angle for _, angle in drawn} == {1, 2, 3}


def test_embeddings_are_those_of_the_images() -> None:
    session, shape = make_session([8, 9, 12, 8], 1), PseudoShape(3, 2, 2)
    images = PseudoImageTasks(session, shape, unchanged).sample(3, 5)["images"]
    embeddings = PseudoEmbeddingTasks(session, shape, unchanged, see, 1).sample(3, 5)["embeddings"]
    assert torch.equal(images.flatten(2).float(), embeddings)


def darker(images: Tensor, keys: Tensor) -> Tensor:
    return images - (images > 0) * (keys % 50).to(torch.uint8)[:, None, None, None]


@pytest.mark.parametrize("processes", [4, 5, 7])
def test_processes_together_have_the_items_of_one(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard may end between an image and its rotation; both are augmented alike."""
    tasks = PseudoImageTasks(make_session([8] * 5, 1), PseudoShape(3, 1, 2), darker)
    whole = tasks.sample(3, 1)["images"]
    bright = whole.flatten(2).amax(2).view(3, -1, 2)
    assert torch.equal(bright[..., 0], bright[..., 1])
    assert len(bright.unique()) > 3
    monkeypatch.setattr(collectives, "world_size", lambda: processes)
    shares = []
    for rank in range(processes):
        monkeypatch.setattr(collectives, "rank", lambda rank=rank: rank)
        shares.append(tasks.sample(3, 1)["images"])
    assert any(share.shape[1] % 2 for share in shares)
    assert torch.equal(torch.cat(shares, 1), whole)


def test_tasks_follow_from_the_seed_alone() -> None:
    tasks = PseudoImageTasks(make_session([8] * 5, 1), PseudoShape(3, 1, 2), unchanged)
    assert torch.equal(tasks.sample(3, 1)["images"], tasks.sample(3, 1)["images"])
    assert not torch.equal(tasks.sample(3, 1)["images"], tasks.sample(3, 2)["images"])


def test_embeddings_do_not_depend_on_who_computes_which(monkeypatch: pytest.MonkeyPatch) -> None:
    session, shape = make_session([8, 9, 8, 12], 1), PseudoShape(2, 2, 1)
    whole = PseudoEmbeddingTasks(session, shape, unchanged, see, 1).sample(3, 5)["embeddings"]
    monkeypatch.setattr(
        embedding_tasks, "map_shards", lambda n, embed: torch.cat([embed(slice(0, 5)), embed(slice(5, n))])
    )
    assert torch.equal(PseudoEmbeddingTasks(session, shape, unchanged, see, 1).sample(3, 5)["embeddings"], whole)


def test_what_the_base_session_cannot_give_is_refused() -> None:
    session = make_session([5] * 3, 1)
    oblong = Session(session.classes, session.images[..., :8], session.labels)
    for shape, base, message in (
        (
            PseudoShape(4, 1, 1),
            session,
            "^pseudo-incremental tasks draw 4 base classes, but there are 3; lower fake_way$",
        ),
        (
            PseudoShape(2, 4, 2),
            session,
            "needs 4 shots and 2 queries .* has 5 images; lower fake_shot or fake_queries$",
        ),
        (PseudoShape(2, 1, 2), oblong, "^tasks=pseudo turns images .* 16 x 8 pixels; set tasks=fake$"),
    ):
        with pytest.raises(UserError, match=message):
            PseudoImageTasks(base, shape, unchanged)
        with pytest.raises(UserError, match=message):
            PseudoEmbeddingTasks(base, shape, unchanged, see, 1)
