"""Fake tasks as images and as embeddings: every item is traced back to the images that it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from marked_images import made_of, make_session, see, unchanged
from torch import Tensor

from fscil.benchmark import Session
from fscil.episodes import KINDS, EmbeddingTasks, ImageTasks, TaskShape, query_labels, sizes


@dataclass(frozen=True)
class Item:
    kind: str  # support, old or new
    phase: int
    row: int  # of the classifier in its phase
    images: tuple[int, ...]
    turns: int


@dataclass(frozen=True)
class Case:
    session: Session
    shape: TaskShape
    old_classes: Tensor  # [steps, old]
    steps: list[list[Item]]

    def classes(self, item: Item) -> tuple[int, ...]:
        return tuple(int(self.session.labels[i]) for i in item.images)


def read(step: Tensor, shape: TaskShape, base_classes: int) -> Iterator[Item]:
    """A step's items, in the order that the module promises."""
    parts = sizes(shape, base_classes)
    assert sum(parts) == len(step)
    supports, *queries = step.split(parts)
    old = shape.old(base_classes)
    for i, item in enumerate(supports):
        yield Item("support", i // (shape.way * shape.shot), old + i // shape.shot, *made_of(item))
    for c in range(shape.phases):
        for row, item in zip(
            query_labels(shape, base_classes, torch.device("cpu"))[c],
            torch.cat(queries[2 * c : 2 * c + 2]),
            strict=True,
        ):
            yield Item("old" if row < old else "new", c, int(row), *made_of(item))


def fewest_of_half(shot: int, queries: int) -> int:
    """The fewest images of a class from whose halves enough different pairs can be made."""
    return next(half for half in range(2, 9) if half >= queries and half * half >= shot + queries)


@st.composite
def cases(draw: st.DrawFn, as_images: bool, kinds: tuple[str, ...] = tuple(KINDS)) -> Case:
    kind = draw(st.sampled_from(kinds))
    phases, way = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    shot, queries = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    new = phases * way
    classes = {"base": new + 1, "mixed": 2 * new, "rotated": new}[kind] + draw(st.integers(0, 2))
    fewest = shot + queries
    if kind == "mixed" and not as_images:
        fewest = max(fewest, 2 * fewest_of_half(shot, queries))
    counts = [fewest + draw(st.integers(0, 4)) for _ in range(classes)]
    seed, steps = draw(st.integers(0, 2**16)), draw(st.integers(1, 3))
    session, shape = make_session(counts, seed), TaskShape(phases, way, shot, queries, kind)
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
                assert item.turns == 0


@settings(max_examples=60, deadline=None)
@given(either)
def test_all_items_of_a_new_row_are_of_one_class_and_rows_are_of_distinct_ones(case: Case) -> None:
    old = case.old_classes.shape[1]
    for old_classes, items in zip(case.old_classes.tolist(), case.steps, strict=True):
        of_row: dict[int, set[frozenset[int]]] = {}
        for item in items:
            if item.kind != "old":
                assert len(item.images) == case.shape.kind.parents
                of_row.setdefault(item.row, set()).add(frozenset(case.classes(item)))
        assert sorted(of_row) == list(range(old, old + case.shape.phases * case.shape.way))
        assert all(len(classes) == 1 for classes in of_row.values())
        distinct = {next(iter(classes)) for classes in of_row.values()}
        assert len(distinct) == len(of_row)
        assert all(len(classes) == case.shape.kind.parents for classes in distinct)
        if case.shape.new_classes == "base":
            assert not {label for classes in distinct for label in classes} & set(old_classes)


@settings(max_examples=60, deadline=None)
@given(either)
def test_all_items_of_a_rotated_class_are_turned_by_one_angle_and_no_others(case: Case) -> None:
    allowed = {1, 2, 3} if case.shape.new_classes == "rotated" else {0}
    for items in case.steps:
        of_row: dict[int, set[int]] = {}
        for item in items:
            if item.kind != "old":
                of_row.setdefault(item.row, set()).add(item.turns)
        assert all(len(turns) == 1 and turns <= allowed for turns in of_row.values())


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
@given(st.one_of(cases(as_images=True), cases(as_images=False, kinds=("base", "rotated"))))
def test_new_classes_share_no_picture_between_support_and_query(case: Case) -> None:
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
@given(cases(as_images=False, kinds=("mixed",)))
def test_blended_embeddings_and_old_queries_take_different_halves(case: Case) -> None:
    for items in case.steps:
        blended = {image for item in items if item.kind != "old" for image in item.images}
        assert blended.isdisjoint(image for item in items if item.kind == "old" for image in item.images)


def test_a_small_class_does_not_make_others_small() -> None:
    """Blends take all of the first half of a large class, old queries all of the second."""
    session, shape = make_session([8, 9, 8, 40], 1), TaskShape(1, 1, 5, 2, "mixed")
    batch = EmbeddingTasks(session, shape, unchanged, see, 1).sample(400, 1)
    items = [item for step in batch["embeddings"] for item in read(step, shape, 4)]
    blended = {i for item in items if item.kind != "old" for i in item.images if session.labels[i] == 3}
    asked = {i for item in items if item.kind == "old" for i in item.images if session.labels[i] == 3}
    assert len(blended) == len(asked) == 20
    assert blended.isdisjoint(asked)
