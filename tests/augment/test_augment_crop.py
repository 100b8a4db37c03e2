"""Crops are windows, holes have their size, flips mirror, and the random versions cover what they should."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import interpolate, pad
from torchvision.transforms.v2 import functional as tv

from fscil.augment.crop import (
    centre_crop,
    crop,
    cutout,
    flip,
    pad_crop,
    random_boxes,
    random_cutout,
    random_flip,
    random_pad_crop,
    random_resized_crop,
    resized_crop,
)
from fscil.augment.draws import Draws, keys_for


def draws(n: int, seed: int = 0) -> Draws:
    return Draws(keys_for(torch.arange(n), seed))


def noise(n: int, height: int, width: int) -> Tensor:
    return torch.randint(1, 256, (n, 3, height, width), generator=torch.Generator().manual_seed(9), dtype=torch.uint8)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_pad_crop_takes_windows_of_the_padded_image(data: st.DataObject) -> None:
    height, width = data.draw(st.integers(3, 20)), data.draw(st.integers(3, 20))
    padding = data.draw(st.integers(0, 4))
    size = data.draw(st.integers(1, min(height, width) + 2 * padding))
    n = data.draw(st.integers(1, 4))
    corners = st.lists(st.integers(0, height + 2 * padding - size), min_size=n, max_size=n)
    top = data.draw(corners)
    left = data.draw(st.lists(st.integers(0, width + 2 * padding - size), min_size=n, max_size=n))
    images = noise(n, height, width)
    result = pad_crop(images, torch.tensor(top), torch.tensor(left), size=size, padding=padding)
    padded = pad(images, [padding] * 4)
    for i in range(n):
        assert torch.equal(result[i], padded[i, :, top[i] : top[i] + size, left[i] : left[i] + size])


def test_crop_reads_images_that_are_not_contiguous() -> None:
    images = noise(4, 10, 10)
    channels_last = images.to(memory_format=torch.channels_last)
    top, left = torch.tensor([0, 1, 2, 3]), torch.tensor([3, 2, 1, 0])
    assert torch.equal(crop(channels_last, top, left, 7), crop(images, top, left, 7))


def test_random_crop_reaches_every_window_equally_often() -> None:
    n, padding = 40_000, 1
    image = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4).expand(n, 3, 4, 4)
    result = random_pad_crop(image, draws(n), size=4, padding=padding)
    windows, counts = result[:, 0].flatten(1).unique(dim=0, return_counts=True)
    assert len(windows) == 9
    four_sigma = 4 * math.sqrt(n * 1 / 9 * 8 / 9)
    assert bool(((counts - n / 9).abs() < four_sigma).all())


def test_images_that_are_larger_than_the_crop_are_not_padded() -> None:
    images = torch.full((200, 3, 9, 9), 7, dtype=torch.uint8)
    assert (random_pad_crop(images, draws(200), size=8, padding=1) == 7).all()
    assert (random_pad_crop(images, draws(200), size=9, padding=1) == 0).any()


def test_flip_mirrors_the_chosen_images_only() -> None:
    images = noise(5, 6, 8)
    chosen = torch.tensor([True, False, True, True, False])
    result = flip(images, chosen)
    assert torch.equal(result[chosen], images[chosen].flip(-1))
    assert torch.equal(result[~chosen], images[~chosen])


def test_random_flip_mirrors_half_of_the_images() -> None:
    n = 40_000
    images = torch.tensor([[1, 2]], dtype=torch.uint8).expand(n, 3, 1, 2)
    flipped = (random_flip(images, draws(n))[:, 0, 0, 0] == 2).sum().item()
    assert abs(flipped - n / 2) < 4 * math.sqrt(n / 4)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 20), st.data())
@settings(max_examples=80, deadline=None)
def test_cutout_blackens_one_square_clipped_at_the_border(
    height: int, width: int, size: int, data: st.DataObject
) -> None:
    row, column = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    images = noise(2, height, width)
    expected = images.clone()
    top, left = row - size // 2, column - size // 2
    expected[:, :, max(top, 0) : max(top + size, 0), max(left, 0) : max(left + size, 0)] = 0
    here = torch.tensor([row, row]), torch.tensor([column, column])
    result = cutout(images, *here, size)
    assert result.dtype == torch.uint8
    assert torch.equal(result, expected)


def test_random_cutout_centres_lie_all_over_the_image() -> None:
    images = torch.ones(20_000, 3, 8, 8, dtype=torch.uint8)
    holes = random_cutout(images, draws(len(images)), size=1)[:, 0] == 0
    assert bool((holes.flatten(1).sum(1) == 1).all())
    counts = holes.sum(0)
    assert bool(((counts - 20_000 / 64).abs() < 4.5 * math.sqrt(20_000 / 64)).all())


@pytest.mark.parametrize("size", [16, 32, 60])
def test_resized_crop_equals_torchvisions(size: int) -> None:
    images = interpolate(noise(12, 12, 10).float(), size=(48, 40), mode="bilinear").to(torch.uint8)
    images[:6] = noise(6, 48, 40)
    top, left, height, width = random_boxes(48, 40, draws(12, 3))
    ours = resized_crop(images, top, left, height, width, size)
    for i in range(12):
        box = [int(side[i]) for side in (top, left, height, width)]
        theirs = tv.resized_crop(images[i].float(), *box, size=[size, size], antialias=False)
        # Both are float32 and rounded to a byte; coordinates go through different units, which moves a value by < 1.
        assert (ours[i].float() - theirs).abs().max() < 1


def test_a_box_of_the_whole_image_changes_nothing() -> None:
    images = noise(3, 20, 20)
    zero, full = torch.zeros(3, dtype=torch.long), torch.full((3,), 20)
    assert torch.equal(resized_crop(images, zero, zero, full, full, 20), images)


@pytest.mark.parametrize(("height", "width"), [(84, 84), (60, 90), (90, 60)])
def test_random_boxes_keep_to_area_and_ratio(height: int, width: int) -> None:
    top, left, h, w = (side.double() for side in random_boxes(height, width, draws(20_000)))
    assert bool(((top >= 0) & (left >= 0) & (top + h <= height) & (left + w <= width)).all())
    # Sides are whole pixels, so area and ratio may leave their ranges by half a pixel per side.
    share = h * w / (height * width)
    assert share.min() > 0.07
    assert share.max() <= 1
    assert bool((((w + 0.5) / (h - 0.5) >= 3 / 4) & ((w - 0.5) / (h + 0.5) <= 4 / 3)).all())
    if height == width:
        # The area share is uniform but for large boxes that do not fit and are drawn again.
        assert share.quantile(0.25).item() == pytest.approx(0.08 + 0.25 * 0.92, abs=0.05)
        assert (w / h).log().mean().item() == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("smallest", [0.3, 0.7])
def test_resized_crops_take_at_least_the_share_asked_for(smallest: float) -> None:
    """Pixels that count columns and rows show how far apart the corners of a crop were."""
    images = torch.zeros(2000, 3, 100, 100, dtype=torch.uint8)
    images[:, 0], images[:, 1] = torch.arange(100), torch.arange(100)[:, None]
    crops = random_resized_crop(images, draws(2000), size=100, smallest=smallest).double()
    width = crops[:, 0, 0, -1] - crops[:, 0, 0, 0] + 1
    height = crops[:, 1, -1, 0] - crops[:, 1, 0, 0] + 1
    share = width * height / 100**2
    assert smallest - 0.02 < share.min() < smallest + 0.02
    assert share.max() > 0.95


def test_a_smallest_share_of_all_leaves_the_whole_image() -> None:
    images = noise(20, 24, 24)
    assert torch.equal(random_resized_crop(images, draws(20), size=24, smallest=1.0), images)


def test_boxes_that_never_fit_fall_back_to_the_centre() -> None:
    top, left, h, w = random_boxes(10, 100, draws(5), scale=(0.9, 1.0))
    assert h.tolist() == [10] * 5
    assert w.tolist() == [13] * 5
    assert (top.tolist(), left.tolist()) == ([0] * 5, [43] * 5)


def test_random_resized_crop_and_centre_crop_give_the_size_asked_for() -> None:
    images = noise(6, 30, 40)
    assert random_resized_crop(images, draws(6), size=24).shape == (6, 3, 24, 24)
    assert torch.equal(centre_crop(images, 20), images[:, :, 5:25, 10:30])
