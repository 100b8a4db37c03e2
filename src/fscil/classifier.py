"""Classifier: a saved model for end users, from image files or arrays to class names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fscil.device import choose_device
from fscil.errors import UserError
from fscil.model import Model
from fscil.model_facts import TAUGHT, model_folder_of
from fscil.model_folder import load_model
from fscil.pictures import Picture, stacked


def load(folder: str | PathLike[str], device: str = "cpu") -> Classifier:
    """Load a model folder, or the run folder around it, ready to predict on cpu or cuda."""
    path, chosen = model_folder_of(Path(folder)), choose_device(device)
    if os.path.lexists(path / TAUGHT):
        raise UserError(f"{path} has been taught more classes than the run learned; open it with fscil.Learner.load")
    model, class_names = load_model(path)
    if not class_names:
        raise UserError(f"{path} knows no class yet; open it with fscil.Learner.load and teach it")
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
        embeddings = self.model.embed_here(stacked(images, self.model.spec.stored_size))
        return embeddings[:, : self.model.encoder.dim].cpu().numpy()

    def _logits(self, images: Picture | Sequence[Picture]) -> Tensor:
        return self.model.classify(self.model.embed_here(stacked(images, self.model.spec.stored_size)))
