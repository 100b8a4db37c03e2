"""What LIMIT's meta-training learns from where it has no fake tasks: batches of base images.

tasks=plain is the ablation's "calibration". tasks=replaced is what the released code does in place of Algorithm 1: one
small support set replaces the rows of its classes, and an ordinary batch asks. With `recursion`, as there, the
calibrated query of one step is the query of the next, and every one of them has its loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil import distributed
from fscil.augment import keys_for
from fscil.benchmark import Session
from fscil.calibrators import Transformer
from fscil.engine import seed_for
from fscil.engine.stage import Batch
from fscil.episodes import class_members, draw_images
from fscil.errors import CannotLearn
from fscil.methods.meta_training import Tasks
from fscil.methods.training import augmented, check_batch, items_of

if TYPE_CHECKING:
    from fscil.methods.limit import Limit, LimitSettings


def plain_tasks(method: Limit, session: Session) -> Tasks:
    """No row is replaced by a prototype."""
    model, batch = method.model, method.settings.batch
    early, late = method.augmentations()

    def draw(steps: int, first: int, segment: int) -> Batch:
        def seed(epoch: int) -> int:
            return seed_for(method.engine.seed, "meta-train", segment, epoch)

        items = items_of(session, batch, seed, 0, steps)
        return augmented(session, items, late if method.is_late(first) else early)

    def loss(embeddings: Tensor, batch: Batch) -> Tensor:
        return recursive_loss(method, model.rows, embeddings, batch["labels"])

    step_bytes = batch * session.images.shape[1:].numel()
    return Tasks(method.iterations(step_bytes, min(batch, len(session.labels)), draw), loss)


def replaced_tasks(method: Limit, session: Session) -> Tasks:
    """N-way K-shot supports, whose prototypes replace rows, and batches of epochs over the base session as queries.

    Supports and queries may be the same images, as in the released code.
    """
    settings, engine, model = method.settings, method.engine, method.model
    N, K = settings.fake_way, settings.fake_shot
    members, counts = class_members(session.labels.cpu(), len(session.classes))
    early, late = method.augmentations()

    def draw(steps: int, first: int, segment: int) -> Batch:
        """labels [steps, N * K + batch], those of the supports first, as the images are"""
        seed = seed_for(engine.seed, "supports", segment)
        _, supports = draw_images(members, counts, N, K, steps, torch.Generator().manual_seed(seed))
        supports = supports.flatten(1)
        keys = keys_for(torch.arange(supports.numel()).view(supports.shape), seed + 1)
        queries, their_keys = items_of(
            session, settings.batch, lambda epoch: seed_for(engine.seed, "meta-train", epoch), first, first + steps
        )
        items = torch.cat([supports, queries], 1), torch.cat([keys, their_keys], 1)
        return augmented(session, items, late if method.is_late(first) else early)

    def loss(embeddings: Tensor, batch: Batch) -> Tensor:
        supports, queries = embeddings[: N * K], embeddings[N * K :]
        replaced = batch["labels"][: N * K : K]
        W = model.rows.index_copy(0, replaced, supports.view(N, K, -1).mean(1))
        return recursive_loss(method, W, queries, batch["labels"][N * K :])

    items = N * K + min(settings.batch, len(session.labels))
    return Tasks(method.iterations(items * session.images.shape[1:].numel(), items, draw), loss)


def recursive_loss(method: Limit, W: Tensor, queries: Tensor, labels: Tensor) -> Tensor:
    """The mean over all depths; in the paper there is only one."""
    calibrator, depth = method.model.calibrator, method.settings.recursion
    if depth == 1:
        return F.cross_entropy(calibrator(W, queries), labels)
    assert isinstance(calibrator, Transformer)
    return F.cross_entropy(torch.cat(calibrator.recur(W, queries, depth)), labels.repeat(depth))


def check_batches(settings: LimitSettings, session: Session) -> None:
    """Refuse batches that the base session cannot provide."""
    check_batch(session, settings.batch)
    if settings.tasks == "plain":
        return
    if settings.fake_way > len(session.classes):
        raise CannotLearn(
            f"tasks=replaced replaces the rows of {settings.fake_way} base classes, but there are "
            f"{len(session.classes)}; lower fake_way"
        )
    fewest = int(torch.bincount(session.labels, minlength=len(session.classes)).min())
    if fewest < settings.fake_shot:
        raise CannotLearn(
            f"tasks=replaced needs {settings.fake_shot} supports of a class, but one base class has {fewest} images; "
            "lower fake_shot"
        )
    distributed.check_step_size(
        settings.fake_way * settings.fake_shot + min(settings.batch, len(session.labels)), "a step", "raise batch"
    )
