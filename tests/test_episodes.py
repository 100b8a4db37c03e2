"""Algorithm 1, property by property."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fscil.episodes import FakeTasks, TaskShape, class_members, sample_fake_tasks
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


@st.composite
def cases(draw: st.DrawFn, mixed: bool | None = None) -> Case:
    blended = draw(st.booleans()) if mixed is None else mixed
    phases, way = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shot, queries = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    fewest = 2 * phases * way if blended else phases * way + 1
    classes = fewest + draw(st.integers(0, 4))
    # classes of unequal size, the least of which just suffices
    counts = [shot + queries + draw(st.integers(0, 6)) for _ in range(classes)]
    seed = draw(st.integers(0, 2**16))
    labels = torch.arange(classes).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=generator(seed))]
    shape = TaskShape(phases, way, shot, queries, mixed=blended)
    members, found = class_members(labels, classes)
    shape.check(found)
    steps = draw(st.integers(1, 3))
    return Case(labels, classes, shape, sample_fake_tasks(members, found, shape, steps, generator(seed)), steps)


def each_step(case: Case) -> range:
    return range(case.steps)


@settings(max_examples=60, deadline=None)
@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_members_are_the_images_of_their_class_and_padding_repeats_them(counts: list[int], seed: int) -> None:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=generator(seed))]
    members, found = class_members(labels, len(counts))
    assert found.tolist() == counts
    assert members.shape == (len(counts), max(counts))
    for label, count in enumerate(counts):
        own = torch.nonzero(labels == label).flatten().tolist()
        assert sorted(members[label, :count].tolist()) == own  # each once
        assert set(members[label].tolist()) == set(own)  # and no other in the padding


@settings(max_examples=60, deadline=None)
@given(cases(mixed=False))
def test_old_and_new_classes_divide_the_label_space(case: Case) -> None:
    for step in each_step(case):
        old, new = case.tasks.old_classes[step].tolist(), case.tasks.new_classes[step].flatten().tolist()
        assert sorted(old + new) == list(range(case.classes))


@settings(max_examples=60, deadline=None)
@given(cases(mixed=True))
def test_blended_classes_have_parents_of_their_own_and_all_base_rows_stay(case: Case) -> None:
    for step in each_step(case):
        parents = case.tasks.new_classes[step].flatten().tolist()
        assert len(set(parents)) == len(parents) == 2 * case.shape.phases * case.shape.way
        assert case.tasks.old_classes[step].tolist() == list(range(case.classes))


@settings(max_examples=60, deadline=None)
@given(cases())
def test_there_are_as_many_phases_ways_and_shots_as_asked(case: Case) -> None:
    shape = case.shape
    parents = 2 if shape.mixed else 1
    assert case.tasks.supports.shape == (case.steps, shape.phases, shape.way, shape.shot, parents)
    assert case.tasks.new_classes.shape == (case.steps, shape.phases, shape.way, parents)
    assert len(case.tasks.old_queries) == len(case.tasks.new_queries) == shape.phases


@settings(max_examples=60, deadline=None)
@given(cases())
def test_every_phase_asks_for_all_classes_seen_so_far(case: Case) -> None:
    shape, parents = case.shape, 2 if case.shape.mixed else 1
    old = case.classes if shape.mixed else case.classes - shape.phases * shape.way
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


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("phases", "way"), [(1, 1), (2, 1), (2, 3), (3, 2)])
def test_the_most_classes_that_fake_tasks_may_take(phases: int, way: int, mixed: bool) -> None:
    shape = TaskShape(phases, way, 1, 1, mixed=mixed)
    enough = 2 * phases * way if mixed else phases * way + 1
    shape.check(torch.full((enough,), 2))
    with pytest.raises(UserError, match="lower fake_way or fake_phases"):
        shape.check(torch.full((enough - 1,), 2))


def test_too_few_images_are_refused() -> None:
    shape = TaskShape(1, 1, 3, 2)
    shape.check(torch.tensor([9, 5, 9]))
    with pytest.raises(UserError, match=r"3 shots and 2 queries.*has 4 images; lower fake_shot or fake_queries"):
        shape.check(torch.tensor([9, 4, 9]))


@pytest.mark.parametrize("numbers", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0)])
def test_nothing_of_a_task_may_be_none(numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(UserError, match="at least 1"):
        TaskShape(*numbers).check(torch.full((9,), 9))
