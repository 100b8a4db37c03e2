"""Prediction: a photo's class, how sure that is, and what else it could be; or `unknown`, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from fscil.errors import UserError
from fscil.learner.confidence import softmax
from fscil.learner.knowledge import AT_ONCE, Knowledge
from fscil.learner.names import UNKNOWN
from fscil.learner.store import COUNTER, Store, shown, unit
from fscil.learner.unknown import Unknown
from fscil.pictures import decode_each

FEW = 32  # images that are answered together where each answer is waited for


@dataclass(frozen=True)
class Rival:
    name: str
    probability: float


@dataclass(frozen=True, eq=False)
class Prediction(str):
    """A string, the name, so that answers can be compared with names, as scikit-learn does; with all that is known."""

    name: str  # the best class, or `unknown`
    probability: float  # of the best class among all
    best: str  # the best class, whether or not the photo is unknown
    score: float  # what the threshold for unknown is compared with; see Unknown
    rivals: tuple[Rival, ...]  # the next classes
    calibrated: bool  # whether probabilities were calibrated; see Learner.confidence
    reason: str  # why it is unknown; empty if it is not

    def __new__(cls, name: str, *facts: object, **more: object) -> Self:
        return super().__new__(cls, name)

    def __getnewargs__(self) -> tuple[Any, ...]:
        """For copies and other processes."""
        return tuple(getattr(self, each.name) for each in fields(self))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Scored:
    """Logits of photos over the classes that may be answered, in order of their names."""

    logits: NDArray[np.float64]  # [n, classes]
    probabilities: NDArray[np.float64]  # [n, classes]
    names: list[str]
    calibrated: bool
    nearest: list[str]  # the counter-example that a photo is nearer to than to its best class; empty: none
    unknown: Unknown  # as it was measured when logits were found


def scored(knowledge: Knowledge, images: Any) -> Scored:
    parts = [_part(knowledge, images[i : i + AT_ONCE], i) for i in range(0, len(images), AT_ONCE)]
    if not parts:
        parts = [_part(knowledge, [], 0)]
    return Scored(
        np.concatenate([part.logits for part in parts]),
        np.concatenate([part.probabilities for part in parts]),
        parts[-1].names,
        parts[-1].calibrated,
        [each for part in parts for each in part.nearest],
        parts[-1].unknown,
    )


def predict_each(knowledge: Knowledge, images: Any, unknown: bool, rivals: int) -> Iterator[Prediction | UserError]:
    """Every image in turn; an error takes the place of one that cannot be read."""
    for start in range(0, len(images), FEW):
        decoded = list(decode_each(images[start : start + FEW], knowledge.model.spec.stored_size, start))
        pixels = [each.pixels for each in decoded if not isinstance(each, UserError)]
        found = scored(knowledge, torch.stack(pixels)) if pixels else None
        made = iter(predictions(found, unknown, rivals) if found else ())
        for each in decoded:
            yield each if isinstance(each, UserError) else next(made)


def _part(knowledge: Knowledge, images: Any, first: int) -> Scored:
    model, size = knowledge.model, knowledge.model.spec.stored_size
    embeddings = model.embed_here(_pixels(images, size, first))
    with knowledge.lock:
        confidence, unknown = knowledge.measured()
        logits, columns = knowledge.logits(embeddings)
        best = columns.order[logits.argmax(1)]
        dim = model.encoder.dim
        rows = model.rows[torch.from_numpy(best).to(model.rows.device), :dim].cpu().numpy()
        nearest = nearest_counters(knowledge.store, embeddings[:, :dim].cpu().numpy(), rows)
    temperature = confidence.temperature or 1.0
    probabilities, calibrated = softmax(logits / temperature), confidence.temperature is not None
    return Scored(logits, probabilities, columns.answers, calibrated, nearest, unknown)


def _pixels(images: Any, size: int, first: int) -> torch.Tensor:
    """uint8 [n, 3, size, size]"""
    if isinstance(images, torch.Tensor) and images.shape[2:] == (size, size):
        return images
    pixels = []
    for each in decode_each(images, size, first):
        if isinstance(each, UserError):
            raise each
        pixels.append(each.pixels)
    return torch.stack(pixels) if pixels else torch.empty(0, 3, size, size, dtype=torch.uint8)


def nearest_counters(store: Store, queries: NDArray[np.float32], rows: NDArray[np.float32]) -> list[str]:
    """For every query [n, d] and its best class's row, the counter-example that is nearer than that row, by cosine."""
    places = store.with_role(COUNTER)
    if not len(places):
        return [""] * len(queries)
    directions = unit(queries)
    cosines = directions @ store.directions(places, queries.shape[1]).T
    to_class = (directions * unit(rows)).sum(1)
    return [
        shown(store, int(places[near.argmax()])) if near.max() > own else ""
        for near, own in zip(cosines, to_class, strict=True)
    ]


def predictions(found: Scored, unknown: bool, rivals: int) -> list[Prediction]:
    """unknown: whether a photo may be unknown; otherwise it is given its best class."""
    made, threshold = [], found.unknown.threshold
    scores = found.unknown.scores(found.logits).tolist()
    photos = zip(found.logits, found.probabilities, found.nearest, scores, strict=True)
    for logits, probabilities, counter, score in photos:
        order = np.argsort(-logits, kind="stable")[: rivals + 1]
        best, reason = found.names[order[0]], ""
        if unknown and counter:
            reason = f"nearer to the counter-example {counter} than to {best}"
        elif unknown and threshold is not None and score < threshold:
            kept = round(100 * (found.unknown.kept or 0))
            reason = f"less like {best}, and {best} alone, than {kept} % of photos are like their own class"
        ranked = [Rival(found.names[i], float(probabilities[i])) for i in order]
        name = UNKNOWN if reason else best
        made.append(Prediction(name, ranked[0].probability, best, score, tuple(ranked[1:]), found.calibrated, reason))
    return made
