"""Pictures as users have them, files, Pillow images, arrays or tensors, become uint8 tensors of one size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fscil.datasets.decode import decode, decode_image, read_bytes
from fscil.errors import UserError
from fscil.reading import thread_count

Picture = str | PathLike[str] | Image.Image | NDArray[np.uint8] | Tensor


@dataclass(frozen=True)
class Decoded:
    """A picture's pixels, uint8 [3, size, size], and what identifies it."""

    pixels: Tensor
    digest: bytes  # SHA-256 of the file's bytes or, where there is no file, of the pixels
    file: str  # its name without folders; empty where there is none


def listed(images: Picture | Sequence[Picture]) -> Any:
    """One picture, a list of them, or a batch uint8 [n, 3, h, w]: as a list, tuple or tensor of them."""
    if isinstance(images, Tensor | np.ndarray) and images.ndim == 4:
        return _batch(images)
    if isinstance(images, np.ndarray) and images.ndim == 1:  # of paths, as scikit-learn cuts lists
        return [str(each) if isinstance(each, str) else each for each in images]
    return images if isinstance(images, list | tuple) else [images]


def stacked(images: Picture | Sequence[Picture], size: int) -> Tensor:
    """uint8 [n, 3, size, size]"""
    several = listed(images)
    if isinstance(several, Tensor) and several.shape[2:] == (size, size):
        return several
    pixels = [pixels_of(each, size, f"image {i}") for i, each in enumerate(several)]
    return torch.stack(pixels) if pixels else torch.empty(0, 3, size, size, dtype=torch.uint8)


def decode_each(images: Sequence[Any], size: int, first: int = 0) -> Iterator[Decoded | UserError]:
    """Every picture in order, decoded by all threads; an error takes the place of one that cannot be read.

    first: the number by which errors call the first one, if it has no file name.
    """

    def attempt(i: int) -> Decoded | UserError:
        try:
            return decode_picture(images[i], size, f"image {first + i}")
        except UserError as error:
            return error

    with ThreadPoolExecutor(max(1, min(thread_count(), len(images)))) as threads:
        yield from threads.map(attempt, range(len(images)))


def decode_picture(image: Any, size: int, name: str) -> Decoded:
    if isinstance(image, str | PathLike):
        path = Path(image)
        data = read_bytes(path)
        pixels = _as_tensor(decode(data, size, str(image)))
        return Decoded(pixels, hashlib.sha256(data).digest(), path.name)
    pixels = pixels_of(image, size, name)
    return Decoded(pixels, hashlib.sha256(pixels.contiguous().numpy().data).digest(), "")


def pixels_of(image: Any, size: int, name: str) -> Tensor:
    """uint8 [3, size, size], as images are stored for training; `name` is for messages."""
    if isinstance(image, str | PathLike):
        return _as_tensor(decode(read_bytes(Path(image)), size, str(image)))
    if isinstance(image, Image.Image):
        return _as_tensor(decode_image(image, size, name))
    if isinstance(image, Tensor | np.ndarray):
        array = np.asarray(image.cpu() if isinstance(image, Tensor) else image)
        if array.ndim == 3 and array.shape[0] == 3 and array.shape[2] != 3:
            array = array.transpose(1, 2, 0)
        if 0 in array.shape:
            raise UserError(f"{name} is an array {list(array.shape)} without a pixel")
        if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
            raise UserError(f"{name} is an array {array.dtype} {list(array.shape)}; give uint8 [height, width, 3]")
        if array.shape == (size, size, 3):
            return _as_tensor(array)
        return _as_tensor(decode_image(Image.fromarray(np.ascontiguousarray(array)), size, name))
    raise UserError(f"{name} is a {type(image).__name__}; give a path, a Pillow image, or a uint8 array or tensor")


def _batch(images: Any) -> Tensor:
    batch = images if isinstance(images, Tensor) else torch.from_numpy(np.ascontiguousarray(images))
    if batch.dtype != torch.uint8 or batch.shape[1] != 3:
        raise UserError(f"a batch of images is uint8 [n, 3, h, w], not {batch.dtype} {list(batch.shape)}")
    return batch


def _as_tensor(pixels: NDArray[np.uint8]) -> Tensor:
    """[size, size, 3] -> [3, size, size]"""
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
