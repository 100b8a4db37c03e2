"""Every AutoAugment operation against torchvision's, and against exact arithmetic where torchvision's own rounds."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision.transforms.v2 import functional as tv

from fscil.augment.autoaugment import apply_operations
from fscil.augment.blends import color, sharpness, smoothed
from fscil.augment.geometry import rotate, shear_x, shear_y, translate_x, translate_y
from fscil.augment.policies import NO_OPERATION, OPERATIONS, magnitude
from fscil.augment.tables import (
    autocontrast,
    brightness,
    contrast,
    equalize,
    grey,
    invert,
    posterize,
    solarize,
)

BINS = [sign * level for level in range(10) for sign in (1, -1)]


def some_images(height: int = 32, width: int = 32) -> Tensor:
    """Noise, smooth colours, a narrow range, a few levels, and one flat image: uint8 [9, 3, height, width]."""
    generator = torch.Generator().manual_seed(5)
    noise = torch.randint(0, 256, (2, 3, height, width), generator=generator)
    smooth = interpolate(torch.rand(4, 3, 5, 5, generator=generator), size=(height, width), mode="bicubic")
    smooth = smooth.clamp(0, 1) * 255
    flat = torch.full((1, 3, height, width), 77)
    return torch.cat([noise, smooth, 90 + smooth[:1] / 5, smooth[:1] // 64 * 64, flat]).to(torch.uint8)


IMAGES = some_images()
OBLONG = some_images(20, 41)


def alike(images: Tensor, value: float) -> Tensor:
    return torch.full((len(images),), value)


def assert_close(ours: Tensor, theirs: Tensor, *, levels: int = 0, share: float = 0.0) -> None:
    """At most a share of the pixels differs by more than levels."""
    assert ours.dtype == torch.uint8
    assert ours.shape == theirs.shape
    differs = (ours.int() - theirs.int()).abs() > levels
    assert differs.float().mean().item() <= share


@pytest.mark.parametrize("images", [IMAGES, OBLONG], ids=["square", "oblong"])
@pytest.mark.parametrize("fill", [0, 128])
@pytest.mark.parametrize("level", BINS)
def test_geometric_operations_match_torchvision(images: Tensor, fill: int, level: int) -> None:
    height, width = images.shape[-2:]
    shear = 0.3 * level / 9
    angle = math.degrees(math.atan(shear))
    # Bins 2 and 6 shear some rows by exactly half a pixel, where float noise decides between two nearest pixels.
    share = 0.04 if abs(level) in (2, 6) else 0.0
    amount = alike(images, shear)
    sheared_x = tv.affine(images, 0, [0, 0], 1, [angle, 0], center=[0, 0], fill=fill)
    sheared_y = tv.affine(images, 0, [0, 0], 1, [0, angle], center=[0, 0], fill=fill)
    assert_close(shear_x(images, amount, fill), sheared_x, share=share)
    assert_close(shear_y(images, amount, fill), sheared_y, share=share)
    right, down = 150 / 331 * width * level / 9, 150 / 331 * height * level / 9
    moved_right = tv.affine(images, 0, [int(right), 0], 1, [0, 0], fill=fill)
    moved_down = tv.affine(images, 0, [0, int(down)], 1, [0, 0], fill=fill)
    assert_close(translate_x(images, alike(images, right), fill), moved_right)
    assert_close(translate_y(images, alike(images, down), fill), moved_down)
    degrees = 30 * level / 9
    # A rotated pixel can land within float noise of the border between two; one in a thousand is ample.
    assert_close(rotate(images, alike(images, degrees), fill), tv.rotate(images, degrees, fill=fill), share=0.001)


@pytest.mark.parametrize("level", BINS)
def test_enhancing_operations_match_torchvision_within_one_level(level: int) -> None:
    """torchvision truncates float32 products, so an exact value may lose a level; ours does not."""
    change = alike(IMAGES, level / 10)
    assert_close(brightness(IMAGES, change), tv.adjust_brightness(IMAGES, 1 + level / 10), levels=1)
    assert_close(contrast(IMAGES, change), tv.adjust_contrast(IMAGES, 1 + level / 10), levels=1)
    assert_close(color(IMAGES, change), tv.adjust_saturation(IMAGES, 1 + level / 10), levels=1)
    assert_close(sharpness(IMAGES, change), tv.adjust_sharpness(IMAGES, 1 + level / 10), levels=1)


@pytest.mark.parametrize("level", BINS)
def test_enhancing_operations_are_exact_in_whole_numbers(level: int) -> None:
    pixels = IMAGES.long()

    def mixed_with(poorer: Tensor) -> Tensor:
        return ((10 * pixels + level * (pixels - poorer.long())).clamp(0, 2550) // 10).to(torch.uint8)

    change = alike(IMAGES, level / 10)
    assert torch.equal(brightness(IMAGES, change), mixed_with(torch.zeros_like(pixels)))
    assert torch.equal(color(IMAGES, change), mixed_with(grey(IMAGES)[:, None]))
    assert torch.equal(sharpness(IMAGES, change), mixed_with(smoothed(IMAGES)))


def test_the_remaining_pixelwise_operations_equal_torchvision() -> None:
    for bits in range(1, 9):
        assert_close(posterize(IMAGES, alike(IMAGES, bits)), tv.posterize(IMAGES, bits))
    for threshold in (0.0, 28.3, 85.0, 170.0, 254.5, 255.0):
        assert_close(solarize(IMAGES, alike(IMAGES, threshold)), tv.solarize(IMAGES, threshold))
    assert_close(invert(IMAGES), tv.invert(IMAGES))
    assert_close(equalize(IMAGES), tv.equalize(IMAGES))
    assert_close(equalize(OBLONG), tv.equalize(OBLONG))


def test_autocontrast_matches_torchvision_within_one_level_and_whole_numbers_exactly() -> None:
    assert_close(autocontrast(IMAGES), tv.autocontrast(IMAGES), levels=1)
    pixels = IMAGES[:-1].long()
    darkest, brightest = pixels.amin((2, 3), keepdim=True), pixels.amax((2, 3), keepdim=True)
    assert torch.equal(autocontrast(IMAGES[:-1]).long(), 255 * (pixels - darkest) // (brightest - darkest))
    flat = IMAGES[-1:]
    assert torch.equal(autocontrast(flat), flat)


def test_each_image_gets_its_own_magnitude() -> None:
    values = torch.linspace(-0.8, 0.8, len(IMAGES))
    for operation, scale in ((shear_x, 0.3), (rotate, 30), (brightness, 1), (color, 1), (sharpness, 1), (contrast, 1)):
        together = operation(IMAGES, values * scale)
        one_by_one = [operation(IMAGES[i : i + 1], values[i : i + 1] * scale) for i in range(len(IMAGES))]
        assert torch.equal(together, torch.cat(one_by_one))


def test_sharpness_leaves_images_without_an_inside_alone() -> None:
    thin = IMAGES[:, :, :2]
    assert torch.equal(sharpness(thin, alike(thin, 0.9)), thin)


SINGLE = {
    "shear_x": shear_x,
    "shear_y": shear_y,
    "translate_x": translate_x,
    "translate_y": translate_y,
    "rotate": rotate,
    "brightness": brightness,
    "contrast": contrast,
    "posterize": posterize,
    "solarize": solarize,
    "autocontrast": lambda images, _: autocontrast(images),
    "equalize": lambda images, _: equalize(images),
    "invert": lambda images, _: invert(images),
    "color": color,
    "sharpness": sharpness,
}


def test_a_mixed_batch_equals_its_single_operations() -> None:
    generator = torch.Generator().manual_seed(1)
    n = 400
    images = IMAGES[torch.randint(len(IMAGES), (n,), generator=generator)]
    operation = torch.randint(NO_OPERATION, len(OPERATIONS), (n,), generator=generator)
    names = [OPERATIONS[i] if i >= 0 else "" for i in operation.tolist()]
    values = torch.tensor([magnitude(name, 1 + i % 9, 32) for i, name in enumerate(names)])
    result = apply_operations(images, operation, values, fill=0)
    assert set(names) == {"", *SINGLE}
    for i, name in enumerate(names):
        alone = images[i : i + 1]
        expected = SINGLE[name](alone, values[i : i + 1]) if name else alone
        assert torch.equal(result[i : i + 1], expected), name
