"""What meta-training learns from: LIMIT's fake tasks (FIT) and CEC's pseudo-incremental ones (PIL), with their losses.

Both methods take both, by the setting `tasks`.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.benchmark import Session
from fscil.engine import seed_for
from fscil.engine.stage import Batch
from fscil.episodes import (
    EmbeddingTasks,
    ImageTasks,
    PseudoEmbeddingTasks,
    PseudoImageTasks,
    PseudoShape,
    TaskShape,
    check_pseudo_tasks,
    check_tasks,
    images_of_step,
    query_labels,
    sizes,
)
from fscil.methods.meta_training import MetaSettings, MetaTrained, Tasks
from fscil.methods.training import Loss


def fake_shape(settings: MetaSettings) -> TaskShape:
    return TaskShape(
        settings.fake_phases, settings.fake_way, settings.fake_shot, settings.fake_queries, settings.fake_classes
    )


def pseudo_shape(settings: MetaSettings) -> PseudoShape:
    return PseudoShape(settings.fake_way, settings.fake_shot, settings.fake_queries)


def check_sampled(settings: MetaSettings, session: Session) -> None:
    """Refuse tasks that the base session cannot provide."""
    learns = settings.encoder_lr > 0
    if settings.tasks == "pseudo":
        check_pseudo_tasks(pseudo_shape(settings), session, encoder_learns=learns)
    else:
        check_tasks(fake_shape(settings), session, encoder_learns=learns)


def sampled_tasks(method: MetaTrained, session: Session) -> Tasks:
    """Tasks and their loss."""
    settings, engine, base = method.settings, method.engine, len(session.classes)
    pseudo, fake, episode = settings.tasks == "pseudo", fake_shape(settings), pseudo_shape(settings)
    items = 2 * episode.images if pseudo else sum(sizes(fake, base))
    early, late = task_sources(method, session, fake, episode)

    def draw(steps: int, first: int, segment: int) -> Batch:
        source = late if method.is_late(first) else early
        return source.sample(steps, seed_for(engine.seed, "meta-train", segment))

    if settings.encoder_lr > 0:
        pictures = items if pseudo else images_of_step(fake, base)
        step_bytes = pictures * session.images.shape[1:].numel()
    else:
        step_bytes = items * method.model.rows.shape[1] * 4  # of float32
    loss = pseudo_loss(method, episode) if pseudo else phases_loss(method, fake, base)
    return Tasks(method.iterations(step_bytes, items, draw), loss)


class Source(Protocol):
    def sample(self, steps: int, seed: int) -> Batch: ...


def task_sources(method: MetaTrained, session: Session, fake: TaskShape, episode: PseudoShape) -> tuple[Source, Source]:
    """Of augmented images, and of later ones. Tasks are images if the encoder learns, else embeddings made once."""
    pseudo, (early, late) = method.settings.tasks == "pseudo", method.augmentations()
    if method.settings.encoder_lr == 0:
        seed, embed = seed_for(method.engine.seed, "embeddings"), method.model.embed_here
        source: Source = (
            PseudoEmbeddingTasks(session, episode, early, embed, seed)
            if pseudo
            else EmbeddingTasks(session, fake, early, embed, seed)
        )
        return source, source
    if pseudo:
        return PseudoImageTasks(session, episode, early), PseudoImageTasks(session, episode, late)
    return ImageTasks(session, fake, early), ImageTasks(session, fake, late)


def phases_loss(method: MetaTrained, shape: TaskShape, base_classes: int) -> Loss:
    """LIMIT, Eq. (9): the sum over the phases of a fake task."""
    model, device = method.model, method.engine.device
    labels = query_labels(shape, base_classes, device)
    parts = sizes(shape, base_classes)

    def loss(embeddings: Tensor, batch: Batch) -> Tensor:
        supports, *queries = embeddings.split(parts)
        prototypes = supports.view(shape.phases, shape.way, shape.shot, -1).mean(2)  # Eq. (prototype)
        W = model.rows.index_select(0, batch["old_classes"])
        total = torch.zeros((), device=device)
        for c in range(shape.phases):
            W = torch.cat([W, prototypes[c]])  # Eq. (5): prototypes of earlier phases stay
            asked = torch.cat(queries[2 * c : 2 * c + 2])
            total = total + F.cross_entropy(model.calibrator(W, asked), labels[c])
        return total

    return loss


def pseudo_loss(method: MetaTrained, shape: PseudoShape) -> Loss:
    """CEC: base classes and rotated ones, all of them with prototypes, are told apart after calibration."""
    N, K, Kq = shape.way, shape.shot, shape.queries
    labels = torch.arange(2 * N, device=method.engine.device).repeat_interleave(Kq)

    def loss(embeddings: Tensor, batch: Batch) -> Tensor:
        # items are pairs of an image and its rotation; classes become base 1..N, rotated 1..N
        of_class = embeddings.view(N, K + Kq, 2, -1).permute(2, 0, 1, 3).flatten(0, 1)  # [2N, K + K', d]
        prototypes, queries = of_class[:, :K].mean(1), of_class[:, K:].flatten(0, 1)
        return F.cross_entropy(method.model.calibrator(prototypes, queries), labels)

    return loss
