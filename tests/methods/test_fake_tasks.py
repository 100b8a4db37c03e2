"""Fake tasks as images and as embeddings: every item is followed back to the images that it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fscil.benchmark import Session
from fscil.episodes import TaskShape, class_members, sample_fake_tasks
from fscil.errors import UserError
from fscil.methods.fake_tasks import EmbeddingTasks, ImageTasks, blend, check_tasks, query_labels, sizes, task_images

PIXELS = (3, 8, 8)  # room for 192 images that are told apart by their one bright pixel


def unchanged(images: Tensor, keys: Tensor) -> Tensor:
    return images


def see(images: Tensor) -> Tensor:
    """Stands for an encoder: the embedding of an image is the image."""
    return images.flatten(1).float()


def parents_of(item: Tensor) -> tuple[int, ...]:
    """The numbers of the images that an item was blended from: bright pixels of 200, or of 100 if there are two."""
    bright = torch.nonzero(item.flatten()).flatten().tolist()
    values = {float(item.flatten()[i]) for i in bright}
    assert values == ({200.0} if len(bright) == 1 else {100.0})
    return tuple(bright) if len(bright) == 2 else (bright[0],)


@dataclass(frozen=True)
class Item:
    kind: str  # support, old or new
    phase: int
    row: int  # of the classifier in its phase
    images: tuple[int, ...]


@dataclass(frozen=True)
class Case:
    session: Session
    shape: TaskShape
    old_classes: Tensor  # [steps, old]
    steps: list[list[Item]]

    def classes(self, item: Item) -> tuple[int, ...]:
        return tuple(int(self.session.labels[i]) for i in item.images)


def make_session(counts: list[int], seed: int) -> Session:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    images = torch.zeros(len(labels), 192, dtype=torch.uint8)
    images[torch.arange(len(labels)), torch.arange(len(labels))] = 200
    return Session(tuple(range(len(counts))), images.view(-1, *PIXELS), labels)


def read(step: Tensor, shape: TaskShape, base_classes: int) -> Iterator[Item]:
    """A step's items, in the order that the module promises."""
    parts = sizes(shape, base_classes)
    assert sum(parts) == len(step)
    supports, *queries = step.split(parts)
    old = shape.old(base_classes)
    for i, item in enumerate(supports):
        yield Item("support", i // (shape.way * shape.shot), old + i // shape.shot, parents_of(item))
    for c in range(shape.phases):
        for row, item in zip(
            query_labels(shape, base_classes, torch.device("cpu"))[c],
            torch.cat(queries[2 * c : 2 * c + 2]),
            strict=True,
        ):
            yield Item("old" if row < old else "new", c, int(row), parents_of(item))


def fewest_of_half(shot: int, queries: int) -> int:
    """Of a class's images, so that as many different pairs as needed can be made of two halves."""
    return next(half for half in range(2, 9) if half >= queries and half * half >= shot + queries)


@st.composite
def cases(draw: st.DrawFn, as_images: bool, mixed: bool | None = None) -> Case:
    blended = draw(st.booleans()) if mixed is None else mixed
    phases, way = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    shot, queries = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    classes = (2 * phases * way if blended else phases * way + 1) + draw(st.integers(0, 2))
    fewest = shot + queries if as_images or not blended else max(2 * fewest_of_half(shot, queries), shot + queries)
    counts = [fewest + draw(st.integers(0, 4)) for _ in range(classes)]
    seed, steps = draw(st.integers(0, 2**16)), draw(st.integers(1, 3))
    session, shape = make_session(counts, seed), TaskShape(phases, way, shot, queries, mixed=blended)
    if as_images:
        batch = ImageTasks(session, shape, unchanged).sample(steps, seed)
        items = batch["images"]
    else:
        batch = EmbeddingTasks(session, shape, unchanged, see, seed).sample(steps, seed)
        items = batch["embeddings"]
    return Case(session, shape, batch["old_classes"], [list(read(step, shape, classes)) for step in items])


either = st.one_of(cases(as_images=True), cases(as_images=False))


@settings(max_examples=60, deadline=None)
@given(either)
def test_old_queries_are_images_of_their_row(case: Case) -> None:
    for old_classes, items in zip(case.old_classes.tolist(), case.steps, strict=True):
        for item in items:
            if item.kind == "old":
                assert case.classes(item) == (old_classes[item.row],)


@settings(max_examples=60, deadline=None)
@given(either)
def test_all_items_of_a_new_row_are_of_one_class_and_rows_are_of_distinct_ones(case: Case) -> None:
    old = case.old_classes.shape[1]
    for old_classes, items in zip(case.old_classes.tolist(), case.steps, strict=True):
        of_row: dict[int, set[frozenset[int]]] = {}
        for item in items:
            if item.kind != "old":
                assert len(item.images) == case.shape.parents
                of_row.setdefault(item.row, set()).add(frozenset(case.classes(item)))
        assert sorted(of_row) == list(range(old, old + case.shape.phases * case.shape.way))
        assert all(len(classes) == 1 for classes in of_row.values())
        distinct = {next(iter(classes)) for classes in of_row.values()}
        assert len(distinct) == len(of_row)
        assert all(len(classes) == case.shape.parents for classes in distinct)
        if not case.shape.mixed:
            assert not {label for classes in distinct for label in classes} & set(old_classes)


@settings(max_examples=60, deadline=None)
@given(either)
def test_no_query_is_a_support_of_its_task(case: Case) -> None:
    for items in case.steps:
        supports = {item.images for item in items if item.kind == "support"}
        in_supports = {image for images in supports for image in images}
        for item in items:
            if item.kind == "new":
                assert item.images not in supports
            if item.kind == "old":
                assert not in_supports & set(item.images)


@settings(max_examples=60, deadline=None)
@given(cases(as_images=True))
def test_blends_of_images_share_no_picture_between_support_and_query(case: Case) -> None:
    for items in case.steps:
        supports = {image for item in items if item.kind == "support" for image in item.images}
        assert supports.isdisjoint(image for item in items if item.kind == "new" for image in item.images)


@settings(max_examples=60, deadline=None)
@given(either)
def test_way_shot_and_queries_are_as_asked(case: Case) -> None:
    shape = case.shape
    old = case.old_classes.shape[1]
    for items in case.steps:
        for row in range(old, old + shape.phases * shape.way):
            shots = [item.images for item in items if item.kind == "support" and item.row == row]
            assert len(shots) == len(set(shots)) == shape.shot
        for phase in range(shape.phases):
            asked = [item.row for item in items if item.kind != "support" and item.phase == phase]
            assert asked == sorted(list(range(old + (phase + 1) * shape.way)) * shape.queries)


@settings(max_examples=60, deadline=None)
@given(cases(as_images=False, mixed=True))
def test_blended_embeddings_and_old_queries_take_different_halves(case: Case) -> None:
    for items in case.steps:
        blended = {image for item in items if item.kind != "old" for image in item.images}
        assert blended.isdisjoint(image for item in items if item.kind == "old" for image in item.images)


def test_a_small_class_does_not_make_others_small() -> None:
    """Blends take all of the first half of a large class, old queries all of the second."""
    session, shape = make_session([8, 9, 8, 40], 1), TaskShape(1, 1, 5, 2, mixed=True)
    batch = EmbeddingTasks(session, shape, unchanged, see, 1).sample(400, 1)
    items = [item for step in batch["embeddings"] for item in read(step, shape, 4)]
    blended = {i for item in items if item.kind != "old" for i in item.images if session.labels[i] == 3}
    asked = {i for item in items if item.kind == "old" for i in item.images if session.labels[i] == 3}
    assert len(blended) == len(asked) == 20
    assert blended.isdisjoint(asked)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("as_images", [False, True])
def test_tasks_follow_from_the_seed_alone(mixed: bool, as_images: bool) -> None:
    session, shape = make_session([8] * 6, 1), TaskShape(1, 2, 2, 1, mixed=mixed)

    def sample(seed: int) -> Tensor:
        if as_images:
            return ImageTasks(session, shape, unchanged).sample(3, seed)["images"]
        return EmbeddingTasks(session, shape, unchanged, see, seed).sample(3, seed)["embeddings"]

    assert torch.equal(sample(1), sample(1))
    assert not torch.equal(sample(1), sample(2))


def test_a_blend_is_the_mean_of_its_parents() -> None:
    pair = torch.tensor([[0, 255, 10, 101], [100, 255, 20, 200]], dtype=torch.uint8).view(2, 1, 2, 2)
    expected = [50.0, 255.0, 15.0, 150.5]
    found = blend(pair).flatten().tolist()
    assert all(abs(a - b) <= 0.5 for a, b in zip(found, expected, strict=True))
    assert blend(pair).dtype == torch.uint8


def test_task_images_are_the_means_of_the_sampled_pictures() -> None:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (24, 3, 4, 4), dtype=torch.uint8, generator=generator)
    session = Session(tuple(range(4)), images, torch.arange(4).repeat(6))
    members, counts = class_members(session.labels, 4)
    tasks = sample_fake_tasks(members, counts, TaskShape(1, 2, 2, 1, mixed=True), 2, generator)
    found = task_images(tasks, session, unchanged, 1)["images"]
    for step in range(2):
        pairs = [*tasks.supports[step].reshape(-1, 2).tolist()]
        for place, (a, b) in enumerate(pairs):
            mean = (images[a].double() + images[b].double()) / 2
            assert (found[step, place].double() - mean).abs().max() <= 0.5
        olds = tasks.old_queries[0][step].flatten().tolist()
        for place, i in enumerate(olds, start=len(pairs)):
            assert torch.equal(found[step, place], images[i])


def test_items_are_augmented() -> None:
    """Supports, old queries and blends alike pass through the augmentation."""
    session, shape = make_session([6] * 5, 1), TaskShape(1, 2, 1, 1, mixed=True)
    batch = ImageTasks(session, shape, lambda images, _: images // 2).sample(2, 1)
    assert set(batch["images"].flatten(2).amax(2).flatten().tolist()) == {50, 100}


def test_what_the_base_session_cannot_give_is_refused() -> None:
    check_tasks(TaskShape(1, 1, 3, 1, mixed=True), torch.tensor([4, 4]), encoder_learns=True)
    with pytest.raises(UserError, match="set fake_classes=base or lower fake_shot"):
        check_tasks(TaskShape(1, 1, 3, 2, mixed=True), torch.tensor([5, 9]), encoder_learns=False)
    check_tasks(TaskShape(1, 1, 3, 2, mixed=True), torch.tensor([6, 9]), encoder_learns=False)
    check_tasks(TaskShape(2, 2, 5, 2, mixed=True), torch.tensor([7] * 8), encoder_learns=False)  # photos' defaults
    check_tasks(TaskShape(1, 1, 3, 1), torch.tensor([5, 5]), encoder_learns=False)
    with pytest.raises(UserError, match="lower fake_way"):
        ImageTasks(make_session([5] * 3, 1), TaskShape(1, 3, 1, 1), unchanged)
    with pytest.raises(UserError, match="lower fake_shot"):
        EmbeddingTasks(make_session([5] * 3, 1), TaskShape(1, 1, 5, 1), unchanged, see, 1)
