"""Model: one module from images to logits, with all that inference needs. Training and loading build the same one."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil import calibrators, distributed, encoders
from fscil.encoders import Encoder
from fscil.images import Images, subset

FEATURES_AT_ONCE = 512  # images whose features are raised to the power, averaged over views and whitened together
LARGEST = 4096  # pixels per side
WIDEST = 2**16  # of a calibrator's layers


@dataclass(frozen=True)
class ModelSpec:
    """What a model is built from, besides its tensors: plain values, as a model folder's config.json holds them."""

    encoder: str
    stored_size: int  # image files are resized to this many pixels per side ...
    input_size: int  # ... of which the encoder sees the central ones
    mean: tuple[float, ...]  # of the pixels in [0, 1], for normalisation
    std: tuple[float, ...]
    power: float = 1.0
    mirror: bool = False
    shift: int = 0
    calibrator: str = "cosine"
    calibrator_options: dict[str, Any] = field(default_factory=dict)
    base_margin: float = 0.0
    weights: str = "none"  # what the encoder started from, by name and checksum

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ModelSpec:
        """The spec that dataclasses.asdict and JSON were given; raises TypeError or ValueError for anything else."""
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        spec = cls(**{**values, **lists})
        sizes = (spec.stored_size, spec.input_size, spec.shift)
        numbers = (*spec.mean, *spec.std, spec.power, spec.base_margin)
        if not all(type(size) is int for size in sizes) or not 0 < spec.input_size <= spec.stored_size <= LARGEST:
            raise ValueError(f"sizes {sizes}")
        if not 0 <= spec.shift < spec.stored_size:
            raise ValueError(f"shift {spec.shift}")
        if len(spec.mean) != 3 or len(spec.std) != 3 or not all(_is_finite(number) for number in numbers):
            raise ValueError(f"numbers {numbers}")
        if any(type(value) is int and value > WIDEST for value in spec.calibrator_options.values()):
            raise ValueError(f"calibrator_options {spec.calibrator_options}")
        if min(spec.std) <= 0 or spec.power <= 0 or type(spec.mirror) is not bool:
            raise ValueError(f"std {spec.std}, power {spec.power}, mirror {spec.mirror}")
        return spec


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def build(spec: ModelSpec, classes: int, weights: str = "none") -> Model:
    """A model with this many classes, initialised from torch's global generator; the encoder may load weights."""
    encoder = encoders.build(spec.encoder, spec.mean, spec.std, input_size=spec.input_size, weights=weights)
    rows = torch.empty(classes, encoder.dim)
    if classes:  # a learner may start from nothing
        nn.init.kaiming_uniform_(rows, a=5**0.5)
    model = Model(spec if weights == "none" else replace(spec, weights=encoder.weights), encoder, rows)
    if model.row_size != encoder.dim:
        model.rows.data = F.pad(rows, (0, model.row_size - encoder.dim))
    return model


class Model(nn.Module):
    """phi, W and what turns them into logits: uint8 images [n, 3, h, w] -> logits [n, classes], in order of arrival.

    Three things may be done to the encoder's features, none of them in the paper. They come from a ReLU, so a few
    dominate; raising them to a power below 1 evens them out, which helps classes that the encoder was not trained on
    (Tukey's ladder of powers). An image may be embedded as the mean of several views, its mirror image and copies
    shifted by a few pixels, which lessens the noise. And directions in which images of one class differ may be made to
    count less (whitening, as in discriminant analysis).

    A calibrator with two inputs gets embeddings [n, 2d]: as above, and as the encoder gives them, each view normalised.
    The second half of a base class's row is its trained row; that of a new class, which has none, is zero.

    A calibrator with cells gets maps [n, cells * d], the encoder's features before pooling as they are.

    A model in evaluation mode changes no state when it predicts, so several threads may share it.
    """

    whitening: Tensor  # [d, d], applied to embeddings
    base: Tensor  # bool [classes]: which rows belong to base classes

    def __init__(self, spec: ModelSpec, encoder: Encoder, rows: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.rows = nn.Parameter(rows)
        self.set_calibrator(spec.calibrator, **spec.calibrator_options)
        self.register_buffer("whitening", torch.eye(encoder.dim))
        self.register_buffer("base", torch.ones(len(rows), dtype=torch.bool))
        self.power, self.mirror, self.shift, self.base_margin = spec.power, spec.mirror, spec.shift, spec.base_margin
        self._spec = spec

    @property
    def spec(self) -> ModelSpec:
        """The current spec: build(spec, len(rows)) gives a model that can load this one's state_dict."""
        return replace(
            self._spec,
            power=self.power,
            mirror=self.mirror,
            shift=self.shift,
            calibrator=self.calibrator_name,
            calibrator_options=self.calibrator.options,
            base_margin=self.base_margin,
        )

    @property
    def row_size(self) -> int:
        """Numbers in a row, and in what images are embedded as."""
        return self.encoder.dim * (2 if self.calibrator.two_inputs else self.calibrator.cells or 1)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of one batch, computed at once, without gradients; this is what torch.export exports."""
        if self.calibrator.cells:
            return self.classify(cell_by_cell(self.encoder.spatial(images)))
        return self.classify(self._embed(images, self.encoder))

    def features(self, images: Tensor) -> Tensor:
        """phi(x) of a single view, for gradient steps: uint8 [n, 3, h, w] -> [n, d]"""
        return self._raise(self.encoder(images)) @ self.whitening

    def embed(self, images: Images) -> Tensor:
        """phi(x) of any number of images [n, d], without gradients, in evaluation mode; sharded over all ranks.

        For a calibrator with two inputs it is [n, 2d], for one with cells [n, cells * d].
        """
        return distributed.map_shards(len(images), lambda mine: self.embed_here(subset(images, mine)))

    def embed_here(self, images: Images) -> Tensor:
        """The same, entirely on this rank."""
        batches = images.split(FEATURES_AT_ONCE)
        if self.calibrator.cells:
            parts = [cell_by_cell(self.encoder.spatial_here(batch)) for batch in batches]
        else:
            parts = [self._embed(batch, self.encoder.embed_here) for batch in batches]
        return torch.cat(parts) if parts else self.rows.new_empty(0, self.rows.shape[1])

    def _embed(self, images: Tensor, encode: Callable[[Tensor], Tensor]) -> Tensor:
        return self.join_views([encode(view) for view in self.views(images)])

    def join_views(self, features: Sequence[Tensor]) -> Tensor:
        """The embeddings of images, from what the encoder gives for each of their views [n, d]."""
        embeddings = sum_of(map(self._raise, features)) / len(features) @ self.whitening
        if not self.calibrator.two_inputs:
            return embeddings
        return torch.cat([embeddings, sum_of(F.normalize(each, dim=1) for each in features) / len(features)], 1)

    def views(self, images: Tensor) -> list[Tensor]:
        """An image as it is, or those that it is embedded as the mean of."""
        views = [images, images.flip(-1)] if self.mirror else [images]
        if not self.shift:
            return views
        # black borders, as in training; two opposite corners were as good as more directions
        return [shifted(view, by, by) for view in views for by in (-self.shift, self.shift)]

    def _raise(self, features: Tensor) -> Tensor:
        if self.power == 1:
            return features
        return features.clamp(min=1e-3).pow(self.power)  # at 0 the slope would be infinite

    @torch.no_grad()
    def classify(self, embeddings: Tensor, first: int = 0) -> Tensor:
        """[n, d] -> logits [n, classes]; those of base classes are lowered by the margin.

        If a class's logits depend on its own row alone, those of the classes from `first` on may be asked for.
        """
        logits: Tensor = self.calibrator.predict(self.rows[first:], embeddings)
        return logits.sub_(self.base_margin * self.base[first:]) if self.base_margin else logits

    def set_calibrator(self, name: str, **options: Any) -> None:
        """Replace the set function from rows and queries to logits by a freshly initialised one."""
        self.calibrator_name = name
        self.calibrator = calibrators.build(name, self.encoder.dim, **options).to(self.rows.device)

    def add_rows(self, rows: Tensor, base: bool = False) -> None:
        """Append rows of new classes."""
        self.set_rows(torch.cat([self.rows.detach(), rows.to(self.rows)]))
        self.base = torch.cat([self.base, self.base.new_full((len(rows),), base)])

    def remove_rows(self, classes: Sequence[int]) -> None:
        """Remove the classes with these indices; the others keep their order."""
        stay = torch.ones(len(self.rows), dtype=torch.bool, device=self.rows.device)
        stay[list(classes)] = False
        self.set_rows(self.rows.detach()[stay])
        self.base = self.base[stay]

    def set_rows(self, rows: Tensor) -> None:
        self.rows = nn.Parameter(rows, requires_grad=self.rows.requires_grad)

    def frozen_copy(self) -> Model:
        """A teacher: a copy of the model as it is now, which no longer learns."""
        return copy.deepcopy(self).requires_grad_(False).eval()


def sum_of(tensors: Iterable[Tensor]) -> Tensor:
    return functools.reduce(torch.add, tensors)


def cell_by_cell(maps: Tensor) -> Tensor:
    """Features before pooling [n, d, h, w] -> [n, h * w * d]"""
    return maps.flatten(2).mT.flatten(1)


def shifted(images: Tensor, right: int, down: int) -> Tensor:
    """Moved by this many pixels; what moves in is black. [n, channels, h, w] -> the same"""
    height, width = images.shape[-2:]
    room = max(abs(right), abs(down))
    return F.pad(images, [room] * 4)[..., room - down : room - down + height, room - right : room - right + width]


def as_prototypes(means: Tensor, model: Model) -> Tensor:
    """The rows of new classes, from their means; where rows are pairs, they have no trained row."""
    if model.calibrator.two_inputs:
        means[:, means.shape[1] // 2 :] = 0
    return means
