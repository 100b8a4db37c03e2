"""build(): what the engine relies on."""

import pytest
import torch
from torch import Tensor

from fscil.augment import build, keys_for, pipeline
from fscil.augment.autoaugment import FILL, apply_operations
from fscil.augment.geometry import rotate
from fscil.augment.policies import OPERATIONS
from fscil.errors import UserError


def keys(images: Tensor, seed: int = 0) -> Tensor:
    return keys_for(torch.arange(len(images)), seed)


def noise(n: int = 64, size: int = 32) -> Tensor:
    return torch.randint(1, 256, (n, 3, size, size), generator=torch.Generator().manual_seed(9), dtype=torch.uint8)


ALL = [
    {"augmentation": "none"},
    {"augmentation": "basic"},
    {"augmentation": "basic", "crop": "resized", "flip": False},
    {"augmentation": "autoaug", "cutout": 16},
    {"augmentation": "autoaug", "crop": "resized", "policy": "imagenet"},
]


@pytest.mark.parametrize("settings", ALL, ids=str)
def test_images_in_images_out(settings: dict) -> None:
    augment = build(size=32, **settings)
    images = noise()
    before = images.clone()
    first = augment(images, keys(images, 1))
    assert first.shape == images.shape
    assert first.dtype == torch.uint8
    assert torch.equal(images, before)
    assert torch.equal(augment(images, keys(images, 1)), first)
    assert torch.equal(augment(images, keys(images, 2)), first) == (settings["augmentation"] == "none")
    assert augment(images[:0], keys(images[:0])).shape == (0, 3, 32, 32)


def test_none_keeps_the_centre() -> None:
    images = noise(4, 36)
    assert torch.equal(build("none", size=32)(images, keys(images)), images[:, :, 2:34, 2:34])
    assert torch.equal(build("none", size=36)(images, keys(images)), images)


def test_basic_moves_by_up_to_an_eighth_and_mirrors() -> None:
    images = noise(1).expand(3000, 3, 32, 32)
    result = build("basic", size=32)(images, keys(images))
    assert len(result.flatten(1).unique(dim=0)) == 9 * 9 * 2
    unflipped = build("basic", size=32, flip=False)(images, keys(images))
    assert len(unflipped.flatten(1).unique(dim=0)) == 9 * 9


def test_cutout_and_policy_are_for_autoaug_alone() -> None:
    images = noise()
    plain = build("basic", size=32)(images, keys(images))
    assert torch.equal(build("basic", size=32, cutout=16, policy="imagenet")(images, keys(images)), plain)
    with_hole = build("autoaug", size=32, cutout=16)(images, keys(images))
    without = build("autoaug", size=32)(images, keys(images))
    changed = (with_hole != without).any(dim=1).flatten(1).sum(dim=1)
    assert changed.max() <= 16 * 16
    assert changed.float().mean() > 100


def test_crop_scale_is_for_resized_crops_alone() -> None:
    images = noise()
    for crop, same in (("pad", True), ("resized", False)):
        found = build("basic", size=32, crop=crop, crop_scale=0.5)(images, keys(images))
        assert torch.equal(found, build("basic", size=32, crop=crop)(images, keys(images))) == same
    whole = build("basic", size=32, crop="resized", crop_scale=1.0, flip=False)(images, keys(images))
    assert torch.equal(whole, images)


@pytest.mark.parametrize("settings", ALL, ids=str)
def test_an_image_does_not_notice_its_neighbours(settings: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a batch is split, ordered or sharded, an image gets the augmentation of its key."""
    images = noise(50)
    augment = build(size=32, **settings)
    whole = augment(images, keys(images))
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    assert torch.equal(augment(images[order], keys(images)[order]), whole[order])
    assert torch.equal(augment(images[7:8], keys(images)[7:8]), whole[7:8])
    monkeypatch.setattr(pipeline, "CPU_CHUNK", 20 * 32 * 32)
    assert torch.equal(augment(images, keys(images)), whole)


def test_moved_images_are_filled_with_grey() -> None:
    number = torch.full((1,), OPERATIONS.index("translate_x"))
    result = apply_operations(noise(1), number, torch.tensor([5.0]))
    assert FILL == 128
    assert bool((result[..., :5] == 128).all())
    assert torch.equal(result[..., 5:], noise(1)[..., :-5])


@pytest.mark.parametrize(
    ("settings", "right"),
    [
        ({"augmentation": "autoaugment"}, "none, basic, autoaug"),
        ({"augmentation": "basic", "crop": "centre"}, "pad, resized"),
        ({"augmentation": "autoaug", "policy": "svhn"}, "cifar10, imagenet"),
        ({"augmentation": "autoaug", "cutout": -1}, "cutout at least 0"),
        ({"augmentation": "basic", "crop_scale": 0}, "crop_scale=0 must be above 0 and at most 1"),
        ({"augmentation": "basic", "crop_scale": 1.5}, r"crop_scale=1\.5 must be above 0 and at most 1"),
    ],
)
def test_wrong_names_are_answered_with_the_right_ones(settings: dict, right: str) -> None:
    with pytest.raises(UserError, match=right):
        build(size=32, **settings)


@pytest.mark.parametrize(
    "images", [noise(2, 20), noise(2).float(), noise(2)[:, :1], noise(2)[0]], ids=["small", "float", "grey", "single"]
)
def test_images_that_do_not_fit_are_refused(images: Tensor) -> None:
    with pytest.raises(UserError, match="uint8 images"):
        build("basic", size=32)(images, keys(images))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("settings", ALL, ids=str)
def test_cuda_never_makes_the_host_wait(settings: dict) -> None:
    augment = build(size=32, **settings)
    images = noise().cuda()
    randomness = keys(images)
    augment(images, randomness)  # the first call copies small tables
    torch.cuda.set_sync_debug_mode("error")
    try:
        augment(images, randomness)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_and_cpu_do_the_same_to_an_image() -> None:
    n = 14 * 20
    images = noise(n)
    operation = torch.arange(n) % len(OPERATIONS)
    magnitude = torch.linspace(0.05, 0.9, n)
    on_cpu = apply_operations(images, operation, magnitude)
    on_cuda = apply_operations(images.cuda(), operation, magnitude).cpu()
    assert ((on_cpu.int() - on_cuda.int()).abs() > 1).float().mean() < 1e-3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_single_operation_works_on_cuda() -> None:
    images, degrees = noise(8), torch.linspace(-40, 40, 8)
    moved = rotate(images.cuda(), degrees.cuda()).cpu()
    assert (moved != rotate(images, degrees)).float().mean() < 1e-3
