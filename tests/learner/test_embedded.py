"""The encoder that comes with the package, on real images; its numbers are in the README beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fscil import Learner
from fscil.datasets import cifar100, data_root
from fscil.learner.sources import EMBEDDED


def test_it_is_small_and_comes_with_its_terms() -> None:
    assert EMBEDDED.stat().st_size < 1_000_000
    terms = (EMBEDDED.parent / "README.md").read_text(encoding="utf-8")
    assert "CIFAR100" in terms
    assert "licence" in terms


def test_it_tells_digits_apart_that_it_never_saw(digit_images: tuple[torch.Tensor, torch.Tensor]) -> None:
    images, labels = digit_images
    learner = Learner("embedded")
    for digit in range(10):
        learner.teach(str(digit), images[labels == digit][:5])
    rest = torch.cat([images[labels == digit][5:15] for digit in range(10)])
    assert learner.score(rest, [str(digit) for digit in range(10) for _ in range(10)]) > 0.6  # chance is 0.1


@pytest.mark.slow
def test_cifar100_from_nothing() -> None:
    """Base classes, which it was trained on, and 20 new ones, five photos each; unknowns are the other 20."""
    root = data_root(None)
    if root is None or not (root / "cifar-100-python" / "train").is_file():
        pytest.skip("needs cifar-100-python under FSCIL_DATA")
    benchmark = cifar100.load(cifar100.Cifar100Options(), root)
    names = benchmark.class_names

    def some(label: int, count: int) -> torch.Tensor:
        session = benchmark.sessions[0 if label < 60 else 1 + (label - 60) // 5]
        return session.images[session.labels == label][:count]

    learner = Learner("embedded")
    for label in range(80):
        learner.teach(names[label], some(label, 5))
    tests = {label: benchmark.test_images[benchmark.test_labels == label][:10] for label in range(100)}

    def answers(labels: range) -> list[tuple[str, str]]:
        found = learner.predict(torch.cat([tests[label] for label in labels]))
        return [(names[label], each.name) for label, each in zip(np.repeat(labels, 10), found, strict=True)]

    base, new, other = answers(range(60)), answers(range(60, 80)), answers(range(80, 100))
    assert np.mean([name == given for name, given in base]) > 0.45
    assert np.mean([name == given for name, given in new]) > 0.15  # chance is 0.0125
    assert np.mean([given == "unknown" for _, given in base + new]) < 0.12  # 0.05 is aimed at
    assert np.mean([given == "unknown" for _, given in other]) > 0.12
    assert learner.unknown.let_through is not None
    assert learner.confidence.error_taught is not None
    assert learner.confidence.error_taught < 0.1
