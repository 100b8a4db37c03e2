"""Images are stored at one size and seen by the encoder at another."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil import encoders
from fscil.augment.crop import centre_crop
from fscil.errors import UserError

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)


def some_images(n: int, size: int) -> Tensor:
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(n))


class OnlySixteen(nn.Module):
    """Returns its input."""

    dim = 3
    input_size = 16

    def forward(self, x: Tensor) -> Tensor:
        return x


class OnlyEightyFour(OnlySixteen):
    input_size = 84


@pytest.mark.parametrize(("name", "size", "input_size"), [("resnet20", 13, 8), ("resnet18", 92, 84)])
def test_larger_images_are_cropped_to_their_centre(name: str, size: int, input_size: int) -> None:
    encoder = encoders.build(name, MEAN, STD, input_size=input_size).eval()
    images = some_images(3, size)
    cropped = centre_crop(images, input_size).contiguous()
    assert torch.equal(encoder(images), encoder(cropped))
    assert torch.equal(encoder.embed(images), encoder.embed(cropped))
    assert torch.equal(encoder.spatial(images), encoder.spatial(cropped))
    wide = F.pad(cropped, (4, 5), value=7)  # only its sides are cut
    assert torch.equal(encoder(wide), encoder(cropped))
    encoder.input_size = None
    assert torch.equal(encoder(cropped), encoder.embed(cropped))
    assert not torch.equal(encoder(images), encoder(cropped))


def test_smaller_images_are_refused_in_one_line() -> None:
    encoder = encoders.build("resnet20", MEAN, STD, input_size=16).train()
    for images in (some_images(2, 15), some_images(2, 20)[:, :, :15]):
        with pytest.raises(UserError, match=r"^the encoder needs images of at least 16 pixels a side, but these.*15 x"):
            encoder.embed(images)
    assert encoder.training  # as it was, even so


def test_a_cropping_encoder_can_be_exported() -> None:
    encoder = encoders.build("resnet20", MEAN, STD, input_size=8).eval()
    images = some_images(3, 12)
    exported = torch.export.export(encoder, (images,)).module()
    assert torch.allclose(exported(images), encoder(images), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "stored", "asked", "expected"),
    [
        ("resnet18", 256, 0, 224),
        ("resnet18", 92, 0, 84),
        ("resnet18", 84, 0, 84),
        ("resnet20", 32, 0, 32),
        ("resnet18", 256, 128, 128),
        ("resnet18", 256, 256, 256),
        ("sixteen", 256, 0, 16),
        ("sixteen", 20, 16, 16),
        ("sixteen", 16, 0, 16),
    ],
)
def test_what_is_asked_decides_then_the_encoder_then_the_fields_convention(
    monkeypatch: pytest.MonkeyPatch, name: str, stored: int, asked: int, expected: int
) -> None:
    monkeypatch.setitem(encoders.BACKBONES, "sixteen", OnlySixteen)
    assert encoders.choose_input_size(name, stored, asked) == expected


@pytest.mark.parametrize(
    ("name", "stored", "asked", "message"),
    [
        ("resnet18", 84, 92, r"would see 92 pixels.*stored with 84.*size=92\), or lower input_size"),
        ("resnet18", 92, 224, r"would see 224 pixels.*stored with 92.*size=256"),
        ("resnet18", 84, -1, r"input_size=-1 must be positive"),
        ("sixteen", 32, 32, r"takes images of 16 pixels a side only, not 32; set input_size=0"),
        ("84", 32, 0, r"would see 84 pixels.*stored with 32.*size=92\), or choose another encoder"),
        ("resnet19", 32, 0, r"unknown encoder 'resnet19'"),
    ],
)
def test_sizes_that_cannot_be_are_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, name: str, stored: int, asked: int, message: str
) -> None:
    monkeypatch.setitem(encoders.BACKBONES, "sixteen", OnlySixteen)
    monkeypatch.setitem(encoders.BACKBONES, "84", OnlyEightyFour)
    with pytest.raises(UserError, match=message) as caught:
        encoders.choose_input_size(name, stored, asked)
    assert "\n" not in str(caught.value)


def test_an_encoder_of_one_size_crops_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(encoders.BACKBONES, "sixteen", OnlySixteen)
    assert encoders.build("sixteen", MEAN, STD)(some_images(2, 20)).shape == (2, 3, 16, 16)
    with pytest.raises(UserError, match="takes images of 16 pixels a side only, not 20"):
        encoders.build("sixteen", MEAN, STD, input_size=20)
