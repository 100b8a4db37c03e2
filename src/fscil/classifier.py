"""Classifier: a saved model for end users, from image files or arrays to class names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fscil.datasets.decode import decode, decode_image, read_bytes
from fscil.device import choose_device
from fscil.errors import UserError
from fscil.model import Model
from fscil.model_folder import load_model

Picture = str | PathLike[str] | Image.Image | NDArray[np.uint8] | Tensor


def load(folder: str | PathLike[str], device: str = "cpu") -> Classifier:
    """Load a model folder, or the run folder around it, ready to predict on cpu or cuda."""
    path, chosen = Path(folder), choose_device(device)
    if not os.path.exists(path / "config.json") and os.path.exists(path / "model" / "config.json"):
        path = path / "model"
    model, class_names = load_model(path)
    return Classifier(model.to(chosen), class_names)


class Classifier:
    """Knows classes by name. Safe to use from several threads.

    Images are paths, Pillow images, uint8 arrays or tensors, one or a list of them; or a batch: a uint8 tensor or array
    [n, 3, h, w]. A single array is [height, width, 3], as Pillow and OpenCV have it, or [3, height, width].
    """

    def __init__(self, model: Model, class_names: Sequence[str]) -> None:
        self.model, self.class_names = model, list(class_names)

    def predict(self, images: Picture | Sequence[Picture]) -> list[str]:
        """The most probable class of every image."""
        return [self.class_names[label] for label in self._logits(images).argmax(1).tolist()]

    def predict_proba(self, images: Picture | Sequence[Picture]) -> NDArray[np.float32]:
        """[n, classes]: the softmax of the logits, in the order of class_names."""
        return self._logits(images).softmax(1).cpu().numpy()

    def embed(self, images: Picture | Sequence[Picture]) -> NDArray[np.float32]:
        """[n, d], without the features that some calibrators use beside it"""
        embeddings = self.model.embed_here(self._pixels(images))
        return embeddings[:, : self.model.encoder.dim].cpu().numpy()

    def _logits(self, images: Picture | Sequence[Picture]) -> Tensor:
        return self.model.classify(self.model.embed_here(self._pixels(images)))

    def _pixels(self, images: Picture | Sequence[Picture]) -> Tensor:
        """uint8 [n, 3, size, size], as the images were stored in training."""
        size = self.model.spec.stored_size
        if isinstance(images, Tensor | np.ndarray) and images.ndim == 4:
            return _batch(images, size)
        several = images if isinstance(images, list | tuple) else [images]
        pixels = [_pixels_of(each, size, f"image {i}") for i, each in enumerate(several)]
        return torch.stack(pixels) if pixels else torch.empty(0, 3, size, size, dtype=torch.uint8)


def _batch(images: Any, size: int) -> Tensor:
    batch = images if isinstance(images, Tensor) else torch.from_numpy(np.ascontiguousarray(images))
    if batch.dtype != torch.uint8 or batch.shape[1] != 3:
        raise UserError(f"a batch of images is uint8 [n, 3, h, w], not {batch.dtype} {list(batch.shape)}")
    if len(batch) == 0:
        return batch.new_empty(0, 3, size, size)
    if batch.shape[2:] == (size, size):
        return batch
    return torch.stack([_pixels_of(image, size, f"image {i}") for i, image in enumerate(batch)])


def _pixels_of(image: Any, size: int, name: str) -> Tensor:
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


def _as_tensor(pixels: NDArray[np.uint8]) -> Tensor:
    """[size, size, 3] -> [3, size, size]"""
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
