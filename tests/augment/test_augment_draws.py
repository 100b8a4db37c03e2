"""Numbers that belong to an image: reproducible anywhere, uniform, and unrelated to one another."""

import math

import pytest
import torch

from fscil.augment.draws import BLOCK, Draws, keys_for, mix, shuffled


def reference(x: int) -> int:
    """The finaliser of splitmix64 as published, in Python's own integers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def test_mix_is_the_finaliser_of_splitmix64() -> None:
    values = [0, 1, -1, 2**62, -(2**63), 2**63 - 1, 0x9E3779B97F4A7C15 - 2**64]
    assert [x % 2**64 for x in mix(torch.tensor(values)).tolist()] == [reference(x % 2**64) for x in values]


def test_an_images_numbers_are_those_of_splitmix64_started_with_its_key() -> None:
    keys = [7, -3]
    found = Draws(torch.tensor(keys)).uniform(2 * BLOCK)
    for key, numbers in zip(keys, found.tolist(), strict=True):
        states = [(key + i * 0x9E3779B97F4A7C15) % 2**64 for i in range(1, 2 * BLOCK + 1)]
        assert numbers == [(reference(state) >> 40) / 2**24 for state in states]


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 2])
def test_draws_are_uniform_and_uncorrelated(seed: int) -> None:
    """Neighbouring images, neighbouring draws and neighbouring seeds must be independent of one another."""
    n = 50_000
    numbers = Draws(keys_for(torch.arange(n), seed)).uniform(20)
    other = Draws(keys_for(torch.arange(n), seed + 1)).uniform(20)
    assert bool(((numbers >= 0) & (numbers < 1)).all())
    counts = torch.histc(numbers, 100, 0, 1)
    assert bool(((counts - n * 20 / 100).abs() < 5 * math.sqrt(n * 20 / 100)).all())
    columns = torch.cat([numbers, other, numbers.roll(1, 0)], 1).double()
    correlations = torch.corrcoef(columns.T).fill_diagonal_(0)
    assert correlations.abs().max() < 5 / math.sqrt(n)


def test_draws_do_not_depend_on_how_they_are_taken() -> None:
    keys = keys_for(torch.arange(3), 5)
    at_once = Draws(keys).uniform(3 * BLOCK)
    draws = Draws(keys)
    one_by_one = [draws.uniform() for _ in range(5)]
    rest = draws.uniform(3 * BLOCK - 5)
    assert torch.equal(torch.cat([torch.stack(one_by_one, 1), rest], 1), at_once)


def test_integers_stay_below_their_bounds() -> None:
    bound = torch.tensor([1, 2, 7]).repeat(10_000)
    drawn = Draws(keys_for(torch.arange(30_000), 3)).integers(bound)
    assert [set(drawn[i::3].tolist()) for i in range(3)] == [{0}, {0, 1}, set(range(7))]


def test_shuffled_is_a_permutation_of_its_seed() -> None:
    first = shuffled(1000, 1)
    assert torch.equal(first.sort().values, torch.arange(1000))
    assert torch.equal(first, shuffled(1000, 1))
    assert (first == shuffled(1000, 2)).sum() < 10
