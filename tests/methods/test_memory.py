"""Exemplars: never more than the declared budget, and all that a method keeps of earlier sessions."""

from __future__ import annotations

import pytest
import torch

from fscil.benchmark import Session
from fscil.errors import UserError
from fscil.methods.memory import Memory


def session(classes: tuple[int, ...], each: int = 6) -> Session:
    """Images whose pixels say which class and which image they are."""
    labels = torch.tensor(classes).repeat_interleave(each)
    number = 10 * labels + torch.arange(each).repeat(len(classes))
    images = number.to(torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2).contiguous()
    return Session(classes, images, labels)


def kept(memory: Memory) -> dict[int, list[int]]:
    """Class -> which of its images, in their order."""
    found: dict[int, list[int]] = {}
    for image, label in zip(memory.images, memory.labels.tolist(), strict=True):
        found.setdefault(label, []).append(int(image[0, 0, 0]) - 10 * label)
    return found


def test_none_keeps_nothing() -> None:
    memory = Memory("none")
    memory.keep(session((0, 1)))
    assert len(memory) == 0


def test_so_many_of_each_class() -> None:
    memory = Memory("2/class")
    memory.keep(session((0, 1)))
    memory.keep(session((2,), each=1))
    assert kept(memory) == {0: [0, 1], 1: [0, 1], 2: [0]}


def test_all() -> None:
    memory = Memory("all")
    for classes in ((0, 1), (2,)):
        memory.keep(session(classes))
    assert kept(memory) == {label: list(range(6)) for label in range(3)}


def test_a_budget_in_all_is_shared_by_the_classes_seen() -> None:
    memory = Memory("8")
    memory.keep(session((0, 1)))
    assert kept(memory) == {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}
    memory.keep(session((2,)))
    assert kept(memory) == {label: [0, 1] for label in range(3)}
    memory.keep(session((3, 4, 5, 6, 7, 8)))
    assert len(memory) == 0  # less than one a class


def test_base_classes_share_a_budget_and_new_ones_have_their_own() -> None:
    """TOPIC's; of seven images for three classes, the first class has one more."""
    memory = Memory("7+1/class")
    memory.keep(session((0, 1, 2)))
    assert kept(memory) == {0: [0, 1, 2], 1: [0, 1], 2: [0, 1]}
    restored = Memory("7+1/class")
    restored.load_state(memory.state(), torch.device("cpu"))
    for each in (memory, restored):
        each.keep(session((3, 4)), torch.arange(12).flip(0))
        each.keep(session((5,)))
        assert kept(each) == {0: [0, 1, 2], 1: [0, 1], 2: [0, 1], 3: [5], 4: [5], 5: [0]}
        each.check(classes=6)


def test_base_classes_may_have_any_share_of_theirs() -> None:
    memory = Memory("4+1/class")
    memory.choose(session((0, 1)), torch.tensor([0, 2, 3, 7]), torch.tensor([], dtype=torch.int64))
    assert kept(memory) == {0: [0, 2, 3], 1: [1]}
    memory.check(classes=2)
    memory.choose(session((2,)), torch.tensor([4]), torch.tensor([0, 3]))
    assert kept(memory) == {0: [0], 1: [1], 2: [4]}
    memory.choose(session((3,)), torch.tensor([4, 5]), torch.tensor([0, 1]))
    with pytest.raises(UserError, match=r"keeps 4 images, 2 of a class, but declares memory=4\+1/class"):
        memory.check(classes=4)


def test_classes_without_exemplars_count_too() -> None:
    memory = Memory("5")
    memory.keep(session(tuple(range(6))))  # less than one a class
    assert len(memory) == 0
    memory.keep(session((6,)))
    assert len(memory) == 0
    memory.check(classes=7)


def test_what_is_kept_twice_is_there_once() -> None:
    memory = Memory("all")
    for _ in range(2):
        memory.keep(session((0, 1)))
    assert kept(memory) == {label: list(range(6)) for label in range(2)}


def test_a_budget_of_less_than_one_image_a_class_is_refused_before_training() -> None:
    Memory("7").check_budget(classes=7)
    Memory("none").check_budget(classes=7)
    with pytest.raises(UserError, match="memory=6 is less than one image for each of 7 classes; raise it"):
        Memory("6").check_budget(classes=7)
    Memory("6+1/class").check_budget(classes=9, base=6)
    with pytest.raises(UserError, match=r"memory=6\+1/class is less than one image for each of 7 classes; raise it"):
        Memory("6+1/class").check_budget(classes=9, base=7)


def test_a_budget_in_all_bounds_the_whole() -> None:
    memory = Memory("8")
    memory.keep(session((0, 1)))
    memory.check(classes=6)  # later classes were not kept, and 8 is within the budget


def test_a_ranking_says_which_are_kept_and_which_go_first() -> None:
    memory = Memory("4")
    best_last = torch.arange(12).flip(0)
    memory.keep(session((0, 1)), best_last)
    assert kept(memory) == {0: [5, 4], 1: [5, 4]}
    memory.keep(session((2, 3)))
    assert kept(memory) == {0: [5], 1: [5], 2: [0], 3: [0]}


def test_replay_joins_exemplars_and_the_session() -> None:
    memory, new = Memory("1/class"), session((2,), each=3)
    joined = memory.joined(new)
    assert (joined.classes, joined.labels.tolist()) == ((2,), [2, 2, 2])
    memory.keep(session((0, 1)))
    joined = memory.joined(new)
    assert (joined.classes, joined.labels.tolist()) == ((0, 1, 2), [0, 1, 2, 2, 2])
    assert joined.images[:, 0, 0, 0].tolist() == [0, 10, 20, 21, 22]


def test_exemplars_are_copies_that_outlive_the_session() -> None:
    memory, base = Memory("1/class"), session((0, 1))
    memory.keep(base)
    base.images.zero_()
    assert memory.images[:, 0, 0, 0].tolist() == [0, 10]


def test_more_than_declared_is_noticed() -> None:
    memory = Memory("1/class")
    memory.images, memory.labels = session((0,)).images, session((0,)).labels
    with pytest.raises(UserError, match="keeps 6 images, 6 of a class, but declares memory=1/class"):
        memory.check(classes=1)


@pytest.mark.parametrize(
    "budget", ["many", "-1", "5/classes", "5 per class", "", "1e3", "5+1", "+1/class", "5/class+1", "99999999999"]
)
def test_what_is_no_budget_is_refused(budget: str) -> None:
    with pytest.raises(UserError, match="is not a budget; give none, N/class"):
        Memory(budget)
