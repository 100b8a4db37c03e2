"""Algorithm 1, property by property."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fscil.benchmark import Session
from fscil.episodes import KINDS, FakeTasks, TaskShape, check_tasks, class_members, sample_fake_tasks
from fscil.errors import UserError


@dataclass(frozen=True)
class Case:
    """A base session (its labels), the shape of fake tasks that it can give, and some of them."""

    labels: Tensor
    classes: int
    shape: TaskShape
    tasks: FakeTasks
    steps: int


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def session_of(counts: list[int], height: int = 1, width: int = 1) -> Session:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts, dtype=torch.long))
    return Session(tuple(range(len(counts))), torch.zeros(len(labels), 3, height, width, dtype=torch.uint8), labels)


def fewest_classes(phases: int, way: int, kind: str) -> int:
    """In the paper one base class must stay; a blend takes two, and a rotated class leaves its own row in place."""
    return {"base": phases * way + 1, "mixed": 2 * phases * way, "rotated": phases * way}[kind]


@st.composite
def cases(draw: st.DrawFn, kinds: tuple[str, ...] = tuple(KINDS)) -> Case:
    kind = draw(st.sampled_from(kinds))
    phases, way = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shot, queries = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    classes = fewest_classes(phases, way, kind) + draw(st.integers(0, 4))
    # classes of unequal size, the smallest of which may be just large enough
    counts = [shot + queries + draw(st.integers(0, 6)) for _ in range(classes)]
    seed = draw(st.integers(0, 2**16))
    labels = torch.arange(classes).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=generator(seed))]
    shape = TaskShape(phases, way, shot, queries, kind)
    check_tasks(shape, session_of(counts), encoder_learns=True)
    members, found = class_members(labels, classes)
    steps = draw(st.integers(1, 3))
    return Case(labels, classes, shape, sample_fake_tasks(members, found, shape, steps, generator(seed)), steps)


def each_step(case: Case) -> range:
    return range(case.steps)


@settings(max_examples=60, deadline=None)
@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_members_are_the_images_of_their_class_and_padding_repeats_them(counts: list[int], seed: int) -> None:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts, dtype=torch.long))
    labels = labels[torch.randperm(len(labels), generator=generator(seed))]
    members, found = class_members(labels, len(counts))
    assert found.tolist() == counts
    assert members.shape == (len(counts), max(counts))
    for label, count in enumerate(counts):
        own = torch.nonzero(labels == label).flatten().tolist()
        assert sorted(members[label, :count].tolist()) == own  # each once
        assert set(members[label].tolist()) == set(own)  # and no other in the padding


@settings(max_examples=60, deadline=None)
@given(cases(("base",)))
def test_old_and_new_classes_divide_the_label_space(case: Case) -> None:
    for step in each_step(case):
        old, new = case.tasks.old_classes[step].tolist(), case.tasks.new_classes[step].flatten().tolist()
        assert sorted(old + new) == list(range(case.classes))


@settings(max_examples=60, deadline=None)
@given(cases(("mixed", "rotated")))
def test_blended_and_rotated_classes_have_parents_of_their_own_and_all_base_rows_stay(case: Case) -> None:
    each = 2 if case.shape.new_classes == "mixed" else 1
    for step in each_step(case):
        parents = case.tasks.new_classes[step].flatten().tolist()
        assert len(set(parents)) == len(parents) == each * case.shape.phases * case.shape.way
        assert case.tasks.old_classes[step].tolist() == list(range(case.classes))


@settings(max_examples=60, deadline=None)
@given(cases())
def test_only_rotated_classes_are_turned(case: Case) -> None:
    assert case.tasks.turns.shape == (case.steps, case.shape.phases, case.shape.way)
    allowed = {1, 2, 3} if case.shape.new_classes == "rotated" else {0}
    assert set(case.tasks.turns.flatten().tolist()) <= allowed


@settings(max_examples=60, deadline=None)
@given(cases())
def test_there_are_as_many_phases_ways_and_shots_as_asked(case: Case) -> None:
    shape = case.shape
    parents = 2 if shape.new_classes == "mixed" else 1
    assert case.tasks.supports.shape == (case.steps, shape.phases, shape.way, shape.shot, parents)
    assert case.tasks.new_classes.shape == (case.steps, shape.phases, shape.way, parents)
    assert len(case.tasks.old_queries) == len(case.tasks.new_queries) == shape.phases


@settings(max_examples=60, deadline=None)
@given(cases())
def test_every_phase_asks_for_all_classes_seen_so_far(case: Case) -> None:
    shape, parents = case.shape, 2 if case.shape.new_classes == "mixed" else 1
    old = case.classes - (shape.phases * shape.way if shape.new_classes == "base" else 0)
    for c in range(shape.phases):
        assert case.tasks.old_queries[c].shape == (case.steps, old, shape.queries)
        assert case.tasks.new_queries[c].shape == (case.steps, shape.way * (c + 1), shape.queries, parents)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_images_are_of_the_class_whose_row_they_stand_for(case: Case) -> None:
    labels, tasks = case.labels, case.tasks
    assert torch.equal(labels[tasks.supports], tasks.new_classes[:, :, :, None].expand(tasks.supports.shape))
    for c in range(case.shape.phases):
        old, new = tasks.old_queries[c], tasks.new_queries[c]
        assert torch.equal(labels[old], tasks.old_classes[:, :, None].expand(old.shape))
        so_far = tasks.new_classes[:, : c + 1].flatten(1, 2)
        assert torch.equal(labels[new], so_far[:, :, None].expand(new.shape))


@settings(max_examples=60, deadline=None)
@given(cases())
def test_no_query_is_a_support_of_its_task(case: Case) -> None:
    for step in each_step(case):
        supports = set(case.tasks.supports[step].flatten().tolist())
        for queries in (*case.tasks.old_queries, *case.tasks.new_queries):
            assert supports.isdisjoint(queries[step].flatten().tolist())


@pytest.mark.parametrize("kind", ["mixed", "rotated"])
@pytest.mark.parametrize("phases", [1, 3])
def test_with_enough_images_a_new_class_and_its_parents_ask_with_different_ones(phases: int, kind: str) -> None:
    shape = TaskShape(phases, 2, 3, 2, kind)
    for images, enough in ((3 + 2 * 2 * phases, range(phases)), (3 + 2 * 2, [])):
        members, counts = class_members(torch.arange(12).repeat_interleave(images), 12)
        tasks = sample_fake_tasks(members, counts, shape, 5, generator(1))
        for step in range(5):
            old, new = (
                [q[step].flatten().tolist() for q in queries] for queries in (tasks.old_queries, tasks.new_queries)
            )
            for c in range(phases):
                assert set(old[c]).isdisjoint(new[c])  # within a phase
            assert all(set(old[c]).isdisjoint(new[d]) for c in enough for d in enough)  # and in the whole task


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_images_of_a_class_in_a_set_are_different_ones(case: Case) -> None:
    supports = case.tasks.supports.movedim(3, -1).reshape(-1, case.shape.shot)
    asked = [queries.reshape(-1, case.shape.queries) for queries in case.tasks.old_queries]
    asked += [queries.movedim(2, -1).reshape(-1, case.shape.queries) for queries in case.tasks.new_queries]
    for group in [*supports.tolist(), *torch.cat(asked).tolist()]:
        assert len(set(group)) == len(group)


@settings(max_examples=30, deadline=None)
@given(case=cases(), seed=st.integers(0, 2**16))
def test_tasks_follow_from_the_generator_alone(case: Case, seed: int) -> None:
    members, counts = class_members(case.labels, case.classes)
    first, second = (sample_fake_tasks(members, counts, case.shape, 2, generator(seed)) for _ in range(2))
    assert torch.equal(first.supports, second.supports)
    assert torch.equal(first.turns, second.turns)
    assert torch.equal(first.old_classes, second.old_classes)
    for a, b in zip(first.old_queries + first.new_queries, second.old_queries + second.new_queries, strict=True):
        assert torch.equal(a, b)


def test_every_class_and_every_image_gets_its_turn() -> None:
    labels = torch.arange(6).repeat_interleave(5)
    members, counts = class_members(labels, 6)
    tasks = sample_fake_tasks(members, counts, TaskShape(2, 1, 2, 1), 300, generator(1))
    assert set(tasks.new_classes[:, 0].flatten().tolist()) == set(range(6))
    assert set(tasks.supports.flatten().tolist()) == set(range(30))
    assert set(tasks.old_queries[0].flatten().tolist()) == set(range(30))
    assert len({tuple(step) for step in tasks.new_classes.flatten(1).tolist()}) > 20  # of 30: steps are independent


def test_every_angle_gets_its_turn() -> None:
    members, counts = class_members(torch.arange(6).repeat_interleave(5), 6)
    tasks = sample_fake_tasks(members, counts, TaskShape(2, 1, 2, 1, "rotated"), 300, generator(1))
    assert set(tasks.turns[:, 0].flatten().tolist()) == set(tasks.turns[:, 1].flatten().tolist()) == {1, 2, 3}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("phases", "way"), [(1, 1), (2, 1), (2, 3), (3, 2)])
def test_the_most_classes_that_fake_tasks_may_take(phases: int, way: int, kind: str) -> None:
    shape, enough = TaskShape(phases, way, 1, 1, kind), fewest_classes(phases, way, kind)
    check_tasks(shape, session_of([2] * enough), encoder_learns=True)
    with pytest.raises(UserError, match="lower fake_way or fake_phases"):
        check_tasks(shape, session_of([2] * (enough - 1)), encoder_learns=True)


@pytest.mark.parametrize("kind", KINDS)
def test_too_few_images_are_refused(kind: str) -> None:
    shape = TaskShape(1, 1, 3, 2, kind)
    check_tasks(shape, session_of([9, 5, 9]), encoder_learns=True)
    with pytest.raises(UserError, match=r"3 shots and 2 queries.*has 4 images; lower fake_shot or fake_queries"):
        check_tasks(shape, session_of([9, 4, 9]), encoder_learns=True)


@pytest.mark.parametrize("numbers", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0)])
def test_nothing_of_a_task_may_be_none(numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(UserError, match="at least 1"):
        check_tasks(TaskShape(*numbers), session_of([9] * 9), encoder_learns=True)


def test_blended_embeddings_need_enough_pairs_of_images() -> None:
    def check(shape: TaskShape, counts: list[int]) -> None:
        check_tasks(shape, session_of(counts), encoder_learns=False)

    check_tasks(TaskShape(1, 1, 3, 1, "mixed"), session_of([4, 4]), encoder_learns=True)
    with pytest.raises(UserError, match="set fake_classes=base or lower fake_shot"):
        check(TaskShape(1, 1, 3, 2, "mixed"), [5, 9])
    check(TaskShape(1, 1, 3, 2, "mixed"), [6, 9])
    check(TaskShape(2, 2, 5, 2, "mixed"), [7] * 8)  # the defaults for photos
    check(TaskShape(1, 1, 3, 1), [4, 4])
    check(TaskShape(1, 1, 3, 1, "rotated"), [4, 4])


def test_only_square_images_can_be_rotated() -> None:
    wide = session_of([9] * 9, height=2, width=3)
    for kind in ("base", "mixed"):
        check_tasks(TaskShape(1, 2, 3, 1, kind), wide, encoder_learns=False)
    for encoder_learns in (False, True):
        with pytest.raises(UserError, match=r"^fake_classes=rotated .* square, .* 2 x 3 pixels; set fake_classes=.*$"):
            check_tasks(TaskShape(1, 2, 3, 1, "rotated"), wide, encoder_learns=encoder_learns)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UserError, match="unknown value for fake_classes 'rotate': did you mean 'rotated'"):
        check_tasks(TaskShape(1, 1, 1, 1, "rotate"), session_of([9] * 9), encoder_learns=True)
