"""Class means and cosines on embeddings: powers of features, mirrored and shifted copies of an image."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fscil.benchmark import Benchmark
from fscil.errors import UserError
from fscil.methods import Method

MakeMethod = Callable[..., Method]


def test_decoupled_cosine_compares_with_class_means(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("decoupled-cosine", benchmark)
    method.learn_base(benchmark.sessions[0])
    for session in benchmark.sessions[1:]:
        method.learn_session(session)
    logits = method.logits(benchmark.test_images)
    queries = method.embed(benchmark.test_images).double()
    for session in benchmark.sessions:
        for label in session.classes:
            mean = method.embed(session.images[session.labels == label]).double().mean(0)
            cosine = (queries @ mean) / (queries.norm(dim=1) * mean.norm())
            assert torch.allclose(logits[:, label].double(), method.settings.scale * cosine, atol=1e-4)


@pytest.mark.parametrize("name", ["decoupled-cosine", "limit"])
def test_a_power_evens_out_the_features(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    benchmark = tiny_benchmark()
    method = make_method(name, benchmark, power=0.5)
    method.learn_base(benchmark.sessions[0])
    method.learn_session(benchmark.sessions[1])
    features = method.model.encoder.embed(benchmark.test_images)
    assert (features >= 0).all()
    assert torch.allclose(method.embed(benchmark.test_images) ** 2, features, atol=2e-3)
    new = benchmark.sessions[1]
    for label in new.classes:  # prototypes are means of what is compared with them
        expected = method.embed(new.images[new.labels == label]).mean(0)
        assert torch.allclose(method.state()["rows"][label], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["decoupled-cosine", "limit"])
def test_a_mirrored_embedding_is_the_mean_over_both_images(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    benchmark = tiny_benchmark()
    method = make_method(name, benchmark, mirror=True, power=0.5)
    method.learn_base(benchmark.sessions[0])
    images = benchmark.test_images
    method.model.mirror = False
    both = (method.embed(images) + method.embed(images.flip(-1))) / 2
    assert not torch.allclose(method.embed(images), both, atol=1e-4)
    method.model.mirror = True
    assert torch.allclose(method.embed(images), both, atol=1e-5)


def moved(image: Tensor, pixels: int) -> Tensor:
    """[3, h, w], moved to the right and down by this many pixels; black moves in."""
    found, (_, height, width) = torch.zeros_like(image), image.shape
    for y in range(height):
        for x in range(width):
            if 0 <= y - pixels < height and 0 <= x - pixels < width:
                found[:, y, x] = image[:, y - pixels, x - pixels]
    return found


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("shift", [1, 3])
def test_a_shifted_embedding_is_the_mean_over_moved_copies(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], shift: int, mirror: bool
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("decoupled-cosine", benchmark, shift=shift, mirror=mirror, power=0.5, whiten=1.0)
    method.learn_base(benchmark.sessions[0])
    A, images = method.state()["whitening"], benchmark.test_images[::5]
    found = method.embed(images)
    torch.testing.assert_close(method.model(images), method.classify(found))  # and so do exported models
    for image, embedding in zip(images, found, strict=True):
        views = [moved(each, by) for each in ([image, image.flip(-1)] if mirror else [image]) for by in (shift, -shift)]
        features = [method.model.encoder.embed(view[None])[0].clamp(min=1e-3).sqrt() for view in views]
        torch.testing.assert_close(embedding, sum(features) / len(features) @ A, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["decoupled-cosine", "limit"])
def test_shifts_that_leave_nothing_of_an_image_are_refused(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], name: str
) -> None:
    sessions = tiny_benchmark(size=8).sessions
    make_method(name, tiny_benchmark(), shift=7).check_sessions(sessions)
    with pytest.raises(UserError, match=r"^shift=8 moves images of 8 pixels out of sight; lower it$"):
        make_method(name, tiny_benchmark(), shift=8).check_sessions(sessions)
