from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fscil import datasets
from fscil.benchmark import Benchmark, inner_benchmark, split, validation_benchmark
from fscil.errors import UserError

Build = Callable[..., Benchmark]


def same_sessions(one: Benchmark, two: Benchmark) -> bool:
    return len(one.sessions) == len(two.sessions) and all(
        a.classes == b.classes and torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels)
        for a, b in zip(one.sessions, two.sessions, strict=True)
    )


@pytest.mark.parametrize("trial", [1, 2, 30])
def test_another_draw_is_what_reading_again_would_give(tiny_benchmark: Build, trial: int) -> None:
    redrawn, read_again = tiny_benchmark(trial=5).redrawn(trial), tiny_benchmark(trial=trial)
    assert same_sessions(redrawn, read_again)
    assert redrawn.split_checksum == read_again.split_checksum
    assert not same_sessions(redrawn, tiny_benchmark(trial=5))


def test_another_draw_of_an_inner_benchmark(tiny_benchmark: Build) -> None:
    outer = tiny_benchmark(base=9, images=10)
    redrawn, made_again = validation_benchmark(outer).redrawn(3), validation_benchmark(outer, trial=3)
    assert same_sessions(redrawn, made_again)
    assert redrawn.split_checksum == made_again.split_checksum


def sizes(benchmark: Benchmark) -> list[tuple[int, int]]:
    """Classes and images of every session."""
    return [(len(session.classes), len(session.labels)) for session in benchmark.sessions]


@pytest.mark.parametrize(
    ("base", "way", "expected"),
    [
        (60, 5, [(40, 320), *[(5, 10)] * 4]),
        (9, 2, [(7, 56), (2, 4)]),
        (6, 2, [(4, 32), (2, 4)]),
        (5, 3, [(4, 32), (1, 2)]),  # a third of them is less than a session
        (3, 2, [(2, 16), (1, 2)]),
    ],
)
def test_an_inner_benchmark_has_a_third_of_the_base_classes_arrive_later(
    tiny_benchmark: Build, base: int, way: int, expected: list[tuple[int, int]]
) -> None:
    """Ten images a class, of which two are held out; two shots."""
    outer = tiny_benchmark(base=base, ways=(way, 1), shots=(2, 3), images=10, size=2)
    inner = validation_benchmark(outer)
    assert sizes(inner) == expected
    assert inner.class_names == outer.class_names[: sum(classes for classes, _ in expected)]
    assert inner.test_labels.bincount().tolist() == [2] * len(inner.class_names)
    assert (inner.name, inner.warnings) == ("tiny-validation", outer.warnings)


def test_an_inner_benchmark_of_digits() -> None:
    """3 + 1 x 1-way 5-shot: a third of four base classes is less than a session of two."""
    digits = datasets.get("digits")
    inner = validation_benchmark(digits.load(digits.options(), None))
    assert [session.classes for session in inner.sessions] == [(0, 1, 2), (3,)]
    assert len(inner.sessions[1].labels) == 5
    assert inner.class_names == ("0", "1", "2", "3")


def test_too_few_base_classes_have_no_inner_benchmark(tiny_benchmark: Build) -> None:
    base, later, _ = tiny_benchmark(base=2).sessions
    with pytest.raises(UserError, match=r"^mine: an inner benchmark .* there are only 2; three are needed$"):
        inner_benchmark(base, later, "mine", ["a", "b"])


def test_another_draw_shares_all_but_the_shots(tiny_benchmark: Build) -> None:
    benchmark = tiny_benchmark()
    redrawn = benchmark.redrawn(2)
    assert redrawn.sessions[0] is benchmark.sessions[0]
    assert redrawn.test_images is benchmark.test_images


def test_shots_move_to_where_the_benchmark_is(tiny_benchmark: Build) -> None:
    benchmark = tiny_benchmark().to("meta")
    assert {session.images.device.type for session in benchmark.redrawn(2).sessions} == {"meta"}
    assert benchmark.pool.images.device.type == "cpu"


def measured(images: Tensor) -> list[tuple[float, ...]]:
    """Mean and standard deviation of every channel, the long way round."""
    pixels = images.double() / 255
    means = [float(pixels[:, channel].mean()) for channel in range(3)]
    return [tuple(means), tuple(float((pixels[:, c] - means[c]).square().mean().sqrt()) for c in range(3))]


def assert_normalised_by_its_base_session(benchmark: Benchmark) -> None:
    mean, std = measured(benchmark.sessions[0].images)
    assert benchmark.mean == pytest.approx(mean, rel=1e-12)
    assert benchmark.std == pytest.approx(std, rel=1e-12)


def test_images_are_normalised_by_the_base_session(tiny_benchmark: Build) -> None:
    benchmark = tiny_benchmark(base=9, images=10)
    inner = validation_benchmark(benchmark)
    assert_normalised_by_its_base_session(benchmark)
    assert_normalised_by_its_base_session(inner)
    assert inner.mean != benchmark.mean
    for each in (benchmark, inner):
        again = each.redrawn(2).to("cpu")
        assert (again.mean, again.std) == (each.mean, each.std)


def test_neither_test_images_nor_later_classes_change_the_normalisation() -> None:
    """Nor, in an inner benchmark, the images that it holds out and the classes that arrive later in it."""
    generator = torch.Generator().manual_seed(2)
    labels = torch.arange(8).repeat_interleave(10)  # 6 base classes, of which the inner benchmark has 4 as its base
    train = torch.randint(0, 256, (80, 3, 4, 4), dtype=torch.uint8, generator=generator)

    def numbers(train: Tensor, test: Tensor) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
        names = [f"class {label}" for label in range(8)]
        outer = split("made", names, train, labels, range(80), test, labels, base_classes=6, ways=[2], shots=[5])
        return [(each.mean, each.std) for each in (outer, validation_benchmark(outer))]

    expected = numbers(train, train)
    assert numbers(train, 255 - train) == expected
    # a later class's image, a later class's of the inner benchmark, one that it holds out, one that both train on
    for row, changes in {60: [False, False], 50: [True, False], 9: [True, False], 0: [True, True]}.items():
        other = train.clone()
        other[row] = 255
        assert [new != old for new, old in zip(numbers(other, train), expected, strict=True)] == changes
