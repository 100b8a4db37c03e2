"""Batched augmentation against torchvision's, image by image in one worker: crop, flip, AutoAugment and cutout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from benchmarks.figures import Figure, seconds
from fscil import augment

# pixels a side -> images per measurement on one CPU core
SIZES = {32: 512, 84: 128, 224: 32}
CUDA_IMAGES = {32: 30_000, 84: 4096, 224: 512}


def batched(size: int, n: int, device: str) -> Callable[[], Tensor]:
    images = torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, device=device)
    keys = augment.keys_for(torch.arange(n), 1)
    crop, policy = ("pad", "cifar10") if size == 32 else ("resized", "imagenet")  # as such images are trained on
    transform = augment.build("autoaug", size=size, crop=crop, policy=policy, cutout=size // 2)
    return lambda: transform(images, keys)


def one_by_one(size: int, n: int) -> Callable[[], Tensor]:
    """What a worker of a data loader does: PIL images in, uint8 tensors out."""
    crop = v2.RandomCrop(size, padding=size // 8) if size == 32 else v2.RandomResizedCrop(size)
    policy = v2.AutoAugmentPolicy.CIFAR10 if size == 32 else v2.AutoAugmentPolicy.IMAGENET
    cutout = v2.RandomErasing(p=1, scale=(0.25, 0.25), ratio=(1, 1))
    transform = v2.Compose([crop, v2.RandomHorizontalFlip(), v2.AutoAugment(policy), v2.PILToTensor(), cutout])
    pixels = torch.randint(0, 256, (n, size, size, 3), dtype=torch.uint8).numpy()
    images = [Image.fromarray(picture) for picture in pixels]
    return lambda: torch.stack([transform(image) for image in images])


@contextmanager
def one_core() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def measure() -> Iterator[Figure]:
    for size, n in SIZES.items():
        with one_core():
            theirs = n / seconds(one_by_one(size, n), repeat=2)
            ours = n / seconds(batched(size, n, "cpu"), repeat=3)
        yield figure(f"augmentation at {size} px, one CPU core", ours, theirs)
        if torch.cuda.is_available():
            count = CUDA_IMAGES[size]
            on_gpu = count / seconds(batched(size, count, "cuda"))
            yield figure(f"augmentation at {size} px, GPU over one CPU worker", on_gpu, theirs)


def figure(name: str, ours: float, theirs: float) -> Figure:
    measured = {"ours, images/s": ours, "torchvision one by one, images/s": theirs}
    return Figure(name, ours / theirs, "times faster", measured)
