"""The policies are torchvision's tables, and the draws follow them."""

from collections import Counter

import pytest
import torch
from torchvision.transforms import AutoAugment, AutoAugmentPolicy

from fscil.augment.autoaugment import apply_operations, auto_augment
from fscil.augment.draws import Draws, keys_for
from fscil.augment.policies import NO_OPERATION, OPERATIONS, POLICIES, SIGNED, draw, magnitude, policy_table

THEIRS = {"cifar10": AutoAugmentPolicy.CIFAR10, "imagenet": AutoAugmentPolicy.IMAGENET}


def plain(name: str) -> str:
    return name.replace("_", "").lower()


@pytest.mark.parametrize("policy", POLICIES)
def test_the_tables_are_torchvisions(policy: str) -> None:
    ours = [tuple((plain(name), p, level) for name, p, level in pair) for pair in POLICIES[policy]]
    theirs = [
        tuple((plain(name), p, level) for name, p, level in pair) for pair in AutoAugment(THEIRS[policy]).policies
    ]
    assert ours == theirs
    assert len(ours) == 25


@pytest.mark.parametrize("size", [32, 84, 224])
def test_magnitude_bins_and_signs_are_torchvisions(size: int) -> None:
    space = {plain(name): entry for name, entry in AutoAugment()._augmentation_space(10, (size, size)).items()}
    assert set(space) == {plain(name) for name in OPERATIONS}
    for name in OPERATIONS:
        values, signed = space[plain(name)]
        assert (name in SIGNED) == signed
        expected = values.expand(10).tolist()
        assert [magnitude(name, level, size) for level in range(10)] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("policy", POLICIES)
def test_both_drawn_steps_are_taken_one_after_the_other(policy: str) -> None:
    images = torch.randint(0, 256, (200, 3, 32, 32), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)
    keys = keys_for(torch.arange(200), 5)
    operation, value = draw(policy_table(policy, 32), Draws(keys))
    expected = images
    for step in range(2):
        expected = apply_operations(expected, operation[:, step], value[:, step])
    assert torch.equal(auto_augment(images, Draws(keys), policy=policy), expected)
    both = (operation != NO_OPERATION).all(1)
    assert len({tuple(pair) for pair in operation[both].tolist()}) > 5


@pytest.mark.parametrize("policy", POLICIES)
def test_draws_follow_the_table(policy: str) -> None:
    n = 200_000
    expected: list[Counter[tuple[str, float]]] = [Counter(), Counter()]
    for pair in POLICIES[policy]:
        for step, (name, probability, level) in enumerate(pair):
            value = magnitude(name, level, 32)
            for sign in (1, -1) if name in SIGNED else (1,):
                share = probability / 25 / (2 if name in SIGNED else 1)
                expected[step][name, round(sign * value, 3) + 0.0] += share
            expected[step]["", 0.0] += (1 - probability) / 25

    table = policy_table(policy, 32)
    operation, value = draw(table, Draws(keys_for(torch.arange(n), 11)))
    for step in range(2):
        names = [OPERATIONS[i] if i != NO_OPERATION else "" for i in operation[:, step].tolist()]
        values = [round(v, 3) + 0.0 if name else 0.0 for name, v in zip(names, value[:, step].tolist(), strict=True)]
        seen = Counter(zip(names, values, strict=True))
        for outcome in seen.keys() | expected[step].keys():
            share = expected[step][outcome]
            four_sigma = 4 * (n * share * (1 - share)) ** 0.5
            assert abs(seen[outcome] - n * share) <= four_sigma, (step, outcome)


def test_the_two_steps_belong_to_one_sub_policy() -> None:
    pairs = {(a, b) for (a, _, _), (b, _, _) in POLICIES["cifar10"]}
    draws = Draws(keys_for(torch.arange(20_000), 2))
    operation, _ = draw(policy_table("cifar10", 32), draws)
    both = operation[(operation != NO_OPERATION).all(dim=1)].tolist()
    assert {(OPERATIONS[a], OPERATIONS[b]) for a, b in both} == pairs - {("solarize", "invert")}  # its probability is 0
