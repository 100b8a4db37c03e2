"""The augmentations by name: what an engine asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fscil.augment.autoaugment import auto_augment
from fscil.augment.crop import centre_crop, random_cutout, random_flip, random_pad_crop, random_resized_crop
from fscil.augment.draws import Draws
from fscil.augment.policies import POLICIES
from fscil.errors import UserError
from fscil.photos import Wholes

# uint8 images [n, 3, h, w] or whole photos, keys int64 [n] -> uint8 [n, 3, size, size]
Augment = Callable[[Tensor | Wholes, Tensor], Tensor]

AUGMENTATIONS = ("none", "basic", "autoaug")
CROPS = ("pad", "resized")

# How many pixels of one channel are worked on at once. On a CPU a chunk's int64 and float copies should stay near the
# cache; on CUDA they only have to fit in memory, and large chunks keep the device busy.
CPU_CHUNK = 512 * 32 * 32
CUDA_CHUNK = 32768 * 32 * 32


def build(
    augmentation: str,
    *,
    size: int,
    crop: str = "pad",
    crop_scale: float = 0.08,
    flip: bool = True,
    policy: str = "cifar10",
    cutout: int = 0,
) -> Augment:
    """The augmentation as a function of uint8 images and, on the host, their keys (keys_for), which decide every draw.

    - "none" keeps the central size x size pixels.
    - "basic" is crop and flip, the paper's BasicAug.
    - "autoaug" is crop, flip, AutoAugment by policy and a hole of cutout pixels a side, the paper's AutoAug. The
      arguments policy and cutout only matter here.

    The crop "pad" takes a random window; images of exactly this size are first padded with black by an eighth of it.
    The crop "resized" takes a random part, of at least the share crop_scale of the area and at 3:4 to 4:3, and resizes
    it; for anything else whole photos are made square first. After the first call nothing makes the host wait for CUDA.
    """
    _check("augmentation", augmentation, AUGMENTATIONS)
    _check("crop", crop, CROPS)
    _check("policy", policy, POLICIES)
    if size < 1 or cutout < 0:
        raise UserError(f"size must be at least 1 and cutout at least 0, but size={size} and cutout={cutout}")
    if not 0 < crop_scale <= 1:
        raise UserError(f"crop_scale={crop_scale} must be above 0 and at most 1, the whole image")
    if augmentation == "none":
        return lambda images, keys: centre_crop(_checked(_squares(images), size), size)

    padding = size // 8
    smallest = size - 2 * padding if crop == "pad" else 1
    first: Callable[[Any, Draws], Tensor] = partial(random_resized_crop, size=size, smallest=crop_scale)
    if crop == "pad":
        first = partial(random_pad_crop, size=size, padding=padding)
    stages: list[Callable[[Tensor, Draws], Tensor]] = []
    if flip:
        stages.append(random_flip)
    if augmentation == "autoaug":
        stages.append(partial(auto_augment, policy=policy))
        if cutout:
            stages.append(partial(random_cutout, size=cutout))

    def augment(images: Tensor | Wholes, keys: Tensor) -> Tensor:
        whole = crop == "resized" and isinstance(images, Wholes)
        images = images if whole else _checked(_squares(images), smallest)
        if len(images) == 0:
            return torch.empty(0, 3, size, size, dtype=torch.uint8, device=images.device)
        area = size * size if isinstance(images, Wholes) else images.shape[-2] * images.shape[-1]
        at_once = max(1, (CUDA_CHUNK if images.device.type == "cuda" else CPU_CHUNK) // area)
        done = []
        for chunk, its_keys in zip(images.split(at_once), keys.split(at_once), strict=True):
            draws = Draws(its_keys)
            found = first(chunk, draws)
            for stage in stages:
                found = stage(found, draws)
            done.append(found)
        return done[0] if len(done) == 1 else torch.cat(done)

    return augment


def _check(what: str, name: str, names: Iterable[str]) -> None:
    if name not in names:
        raise UserError(f"unknown {what} {name!r}; choose one of {', '.join(names)}")


def _squares(images: Tensor | Wholes) -> Tensor:
    return images.squares() if isinstance(images, Wholes) else images


def _checked(images: Tensor, smallest: int) -> Tensor:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3 or min(images.shape[-2:]) < smallest:
        raise UserError(
            f"augmentation needs uint8 images [n, 3, h, w] of at least {smallest} pixels a side, "
            f"but got {images.dtype} {list(images.shape)}; lower size or resize the images"
        )
    return images
