"""The threshold for unknown keeps what it promises: with few photos, with few classes, and as classes are added."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fscil import Learner, datasets
from fscil.learner.changes import Sample
from fscil.learner.store import TAUGHT
from fscil.learner.unknown import Unknown

Pictures = tuple[torch.Tensor, NDArray[np.int64]]  # embeddings and labels


@pytest.fixture(scope="module")
def embedded(digit_images: tuple[torch.Tensor, torch.Tensor]) -> Pictures:
    images, labels = digit_images
    return Learner("embedded")._knowledge.model.embed_here(images), labels.numpy()


def teach(learner: Learner, pictures: Pictures, places: Iterable[int]) -> None:
    embeddings, labels = pictures
    chosen = list(places)
    digests = [hashlib.sha256(str(i).encode()).digest() for i in chosen]
    samples = [Sample(embeddings[i].numpy(), digest, "") for i, digest in zip(chosen, digests, strict=True)]
    learner._add("teach", [str(labels[i]) for i in chosen], samples, TAUGHT)


def kept(learner: Learner, embeddings: torch.Tensor) -> float:
    """Share of photos that are not called unknown."""
    unknown = learner.unknown
    assert unknown.threshold is not None
    return float((unknown.scores(learner._knowledge.logits(embeddings)[0]) >= unknown.threshold).mean())


def some_of(labels: NDArray[np.int64], classes: Iterable[int], n: int, seed: int) -> NDArray[np.intp]:
    generator = np.random.RandomState(seed)
    return np.concatenate([generator.permutation(np.flatnonzero(labels == label))[:n] for label in classes])


@pytest.mark.parametrize("n", [3, 6, 10, 20])
def test_few_photos_of_a_class_keep_what_is_promised(n: int, embedded: Pictures) -> None:
    embeddings, labels = embedded
    found = []
    for seed in range(10):
        learner, taught = Learner("embedded"), some_of(labels, range(10), n, seed)
        teach(learner, embedded, taught)
        found.append(kept(learner, embeddings[np.setdiff1d(np.arange(len(labels)), taught)]))
    assert 0.95 <= np.mean(found) <= 0.99
    assert min(found) > 0.85


def test_photos_of_one_occasion_are_not_taken_for_all_that_there_is(embedded: Pictures) -> None:
    """Six pictures of each digit, by one or two writers; most writers of the test pictures are others."""
    session = datasets.get("digits").load(datasets.get("digits").options(), None).sessions[0]
    first = torch.cat([torch.nonzero(session.labels == label).flatten()[:6] for label in range(4)])
    learner = Learner("embedded")
    pictures = learner._knowledge.model.embed_here(session.images[first]), session.labels[first].numpy()
    teach(learner, pictures, range(24))
    embeddings, labels = embedded
    assert kept(learner, embeddings[labels < 4]) > 0.9


def test_the_share_that_is_kept_stays_as_classes_are_added(embedded: Pictures) -> None:
    embeddings, labels = embedded
    learner, taught, found = Learner("embedded"), list[int](), []
    for label in range(10):
        more = some_of(labels, [label], 10, label).tolist()
        teach(learner, embedded, more)
        taught += more
        if label < 2:
            assert learner.unknown.threshold is None  # nothing stands in for strangers
            continue
        rest = np.setdiff1d(np.flatnonzero(labels <= label), taught)
        found.append(kept(learner, embeddings[rest]))
    assert min(found) > 0.88
    assert 0.94 <= np.mean(found) <= 0.99
    for _ in range(3):
        learner.undo()
    assert kept(learner, embeddings[np.setdiff1d(np.flatnonzero(labels < 7), taught)]) == found[-4]


def test_scores_leave_out_classes_that_may_not_be_answered() -> None:
    unknown = Unknown(0.0, 0.5, None, None, 0, 0, "")
    many = np.arange(14.0)[None]
    assert unknown.scores(many) == pytest.approx([13 - 0.5 * np.arange(3, 13).mean()])
    hidden = np.where(many > 9, -np.inf, many)
    assert unknown.scores(hidden) == pytest.approx([9 - 0.5 * np.arange(9).mean()])
    assert unknown.scores(np.array([[4.0, -np.inf]])).tolist() == [4.0]  # of a single class, its logit
    assert unknown.scores(np.empty((0, 3))).shape == (0,)
