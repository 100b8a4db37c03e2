"""Whitened embeddings: within base classes they vary equally in all directions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.covariance import shrunk_covariance
from torch import Tensor

from fscil.benchmark import Benchmark
from fscil.calibrators import Cosine
from fscil.errors import CannotLearn, UserError
from fscil.methods import Method
from fscil.methods.prototypes import whitening

MakeMethod = Callable[..., Method]


def stretched(n: int = 3000) -> tuple[Tensor, Tensor]:
    """Embeddings of four classes that differ a hundred times more in some directions than in others."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(4, (n,), generator=generator)
    means, mixing = torch.randn(4, 8, generator=generator), torch.randn(8, 8, generator=generator)
    noise = torch.randn(n, 8, generator=generator) * torch.logspace(-1, 1, 8)
    return means[labels] + noise @ mixing, labels


def covariance_within(embeddings: Tensor, labels: Tensor) -> np.ndarray:
    centred = [embeddings[labels == label] - embeddings[labels == label].mean(0) for label in range(4)]
    return np.cov(torch.cat(centred).double().numpy().T, bias=True)


def test_whitened_classes_vary_alike_in_all_directions() -> None:
    embeddings, labels = stretched()
    found = covariance_within(embeddings @ whitening(embeddings, labels, shrinkage=0), labels)
    np.testing.assert_allclose(found / found[0, 0], np.eye(8), atol=1e-3)


@pytest.mark.parametrize("shrinkage", [0.1, 1.0, 10.0])
def test_shrinkage_is_that_of_the_shrunk_covariance(shrinkage: float) -> None:
    """S + a v I is a multiple of scikit-learn's (1 - b) S + b v I, with b = a / (1 + a)."""
    embeddings, labels = stretched()
    A = whitening(embeddings, labels, shrinkage).double().numpy()
    found = A.T @ shrunk_covariance(covariance_within(embeddings, labels), shrinkage / (1 + shrinkage)) @ A
    np.testing.assert_allclose(found / found[0, 0], np.eye(8), atol=1e-3)


def test_layer_normalisation_finds_little_to_subtract_and_lengths_stay() -> None:
    embeddings, labels = stretched()
    whitened = embeddings @ whitening(embeddings, labels, shrinkage=1.0)
    assert float(whitened.norm(dim=1).mean()) == pytest.approx(float(embeddings.norm(dim=1).mean()), rel=1e-4)
    means = torch.stack([whitened[labels == label].mean(0) for label in range(4)])
    subtracted = means.mean(1, keepdim=True).expand_as(means)
    assert subtracted.norm() < 1e-3 * means.norm()  # four means leave half of the directions free


def test_rounding_decides_nothing() -> None:
    """Four class means leave many directions to choose from; the choice must not depend on the last bits."""
    embeddings, labels = stretched()
    noise = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(2))
    A = whitening(embeddings, labels, shrinkage=1.0)
    torch.testing.assert_close(whitening(embeddings + 1e-5 * noise, labels, shrinkage=1.0), A, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["decoupled-cosine", "limit"])
def test_methods_embed_whitened_and_keep_the_matrix(
    name: str, make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark(base=5)
    fixed = {"encoder_lr": 0} if name == "limit" else {}
    method = make_method(name, benchmark, whiten=1.0, power=0.5, mirror=True, **fixed)
    method.learn_base(benchmark.sessions[0])
    A = method.state()["whitening"]
    assert not torch.equal(A, torch.eye(64))
    images, encode = benchmark.test_images, method.model.encoder.embed
    features = sum(encode(each).clamp(min=1e-3).sqrt() for each in (images, images.flip(-1))) / 2
    torch.testing.assert_close(method.embed(images), features @ A, rtol=1e-4, atol=1e-4)


def test_meta_training_sees_the_embeddings_that_are_compared_later(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark(base=5)
    method = make_method("limit", benchmark, whiten=1.0, power=0.5)
    method.learn_base(benchmark.sessions[0])
    torch.testing.assert_close(method.model.features(benchmark.test_images), method.embed(benchmark.test_images))


def test_classes_of_one_image_each_are_refused() -> None:
    with pytest.raises(UserError, match="two different images"):
        whitening(torch.randn(4, 8), torch.arange(4), shrinkage=1.0)


def test_trained_rows_say_the_same_of_whitened_embeddings(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    """As inner products, which is how they were learned, apart from lengths."""
    benchmark = tiny_benchmark(base=5)
    plain, whitened = (make_method("decoupled-cosine", benchmark, rows="trained", whiten=w) for w in (0.0, 1.0))
    scores = []
    for method in (plain, whitened):
        method.learn_base(benchmark.sessions[0])
        scores.append(method.embed(benchmark.test_images) @ method.model.rows.T)
    torch.testing.assert_close(scores[1], scores[0], rtol=1e-3, atol=1e-4)


def test_without_whitening_embeddings_are_what_they_were(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark(base=5)
    method = make_method("decoupled-cosine", benchmark)
    method.learn_base(benchmark.sessions[0])
    features = method.model.encoder.embed(benchmark.test_images)
    assert torch.equal(method.embed(benchmark.test_images), features)
    assert torch.equal(method.logits(benchmark.test_images), Cosine(64, scale=16)(method.model.rows, features))


@pytest.mark.parametrize("size", [1e30, 1e-42])
def test_embeddings_beyond_all_measure_are_refused(size: float) -> None:
    with pytest.raises(CannotLearn, match="too large or too small to be whitened"):
        whitening(size * torch.randn(32, 8), torch.arange(4).repeat_interleave(8), shrinkage=1.0)


def test_too_little_shrinkage_is_refused() -> None:
    """Features that never fire have no variance to divide by."""
    embeddings = torch.randn(32, 8) * (torch.arange(8) > 3)
    with pytest.raises(CannotLearn, match="variance of about 0; raise it"):
        whitening(embeddings, torch.arange(4).repeat_interleave(8), shrinkage=1e-300)
