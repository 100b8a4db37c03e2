"""Pre-training on the base session: cross-entropy over cosine logits. All methods start from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil import augment, distributed, encoders
from fscil.benchmark import Session
from fscil.engine import Stage, seed_for
from fscil.engine.schedule import cosine
from fscil.engine.stage import Batch, ParameterGroup, steps_at_once
from fscil.images import pixels, prefetch, to_device
from fscil.methods import encoder_cache
from fscil.methods.cosine_network import CosineNetwork, cosine_logits
from fscil.methods.method import Context
from fscil.settings import setting


@dataclass(frozen=True)
class PretrainSettings:
    recipe: str = setting(
        "none", "epochs, steps, batch, lr and warmup under one name; each may still be given by itself"
    )
    encoder: str = setting(
        "resnet20", "the network that embeds images; resnet18 for larger ones", origin="the field's for CIFAR100"
    )
    weights: str = setting("none", "what the encoder starts from: none, imagenet, or a file of weights")
    input_size: int = setting(0, "pixels a side that the encoder sees; 0: what suits dataset and encoder", least=0)
    augmentation: str = setting(
        "autoaug",
        "of pre-training; autoaug and basic are the paper's AutoAug and BasicAug",
        choices=("none", "basic", "autoaug"),
    )
    crop: str = setting(
        "pad", "pad and crop for small images, random resized crop for photos", choices=("pad", "resized")
    )
    flip: bool = setting(True, "mirror images at random; off where left and right matter, as in writing")
    policy: str = setting("cifar10", "AutoAugment's policy", choices=("cifar10", "imagenet"))
    cutout: int = setting(0, "side of the square that autoaug blanks out, in pixels", least=0)
    epochs: int = setting(300, "passes over the base session; 0: as many as steps take", origin="the paper's", least=0)
    steps: int = setting(0, "of the optimiser, where epochs is 0; made up to whole epochs, at least one", least=0)
    batch: int = setting(128, "images a step; smaller base sessions take all they have", origin="the paper's", least=1)
    lr: float = setting(0.1, "highest learning rate; from there it falls to 0", origin="the paper's", least=0)
    momentum: float = setting(0.9, "of SGD", origin="the paper's", least=0)
    nesterov: bool = setting(True, "Nesterov's momentum", origin="the released code's; the paper does not say")
    weight_decay: float = setting(5e-4, "of SGD", origin="the released code's; the paper does not say", least=0)
    warmup: int = setting(0, "epochs of linear warm-up; short trainings need it to start at all", least=0)
    scale: float = setting(16.0, "of cosine logits, in pre-training and wherever logits are cosines", least=0)


def steps_of_epoch(session: Session, batch: int) -> int:
    return max(1, len(session.labels) // batch)


def check_batch(session: Session, batch: int) -> None:
    """Refuse batches that are too small for the processes; the session's images may be fewer than a batch."""
    few = len(session.labels) < min(batch, distributed.world_size())
    distributed.check_step_size(
        min(batch, len(session.labels)),
        "a base session" if few else "a batch",
        "give it more images" if few else "raise batch",
    )


Items = tuple[Tensor, Tensor]  # images and keys of their augmentation, int64 [steps, batch], on the host


@lru_cache(maxsize=2)  # every part of a long epoch asks for it, and for the beginning of the next
def epoch_items(images: int, batch: int, seed: int) -> Items:
    """What an epoch's steps take; what does not fill a batch waits for the next epoch."""
    order = augment.shuffled(images, seed)[: images // batch * batch].view(-1, batch)
    return order, augment.keys_for(order, seed + 1)


def items_of(session: Session, batch: int, seed: Callable[[int], int], first: int, last: int) -> Items:
    """What the steps from first to before last take, counted over all epochs; each epoch has a seed of its own."""
    per_epoch, images = steps_of_epoch(session, batch), len(session.labels)
    epochs = range(first // per_epoch, -(-last // per_epoch))
    orders, keys = zip(*(epoch_items(images, min(batch, images), seed(epoch)) for epoch in epochs), strict=True)
    here = slice(first % per_epoch, first % per_epoch + last - first)
    return torch.cat(orders)[here], torch.cat(keys)[here]


def augmented(session: Session, items: Items, augmentation: augment.Augment, following: Items | None = None) -> Batch:
    """Images and labels of the items, [steps, batch, ...], each image augmented as its key says.

    Of several processes each gets its share of every step's images, and all labels. Streamed images of the items that
    are asked for next are read while these are augmented and learned from.
    """
    order, keys = items
    share = distributed.shard(order.shape[1])
    mine = order[:, share]
    images = pixels(session.images, mine.flatten())
    if following is not None:
        prefetch(session.images, following[0][:, share].flatten())
    images = augmentation(images, keys[:, share].flatten()).unflatten(0, mine.shape)
    return {"images": images, "labels": session.labels[to_device(order, session.labels.device)]}


def steps_of_segment(session: Session, batch: int, most_bytes: int) -> int:
    """An epoch's or, if its images take too many bytes, those of about equal parts of it."""
    step_bytes = min(batch, len(session.labels)) * session.images.shape[1:].numel()
    return steps_at_once(steps_of_epoch(session, batch), step_bytes, most_bytes)


def build_augmentation(settings: PretrainSettings, name: str, size: int) -> augment.Augment:
    return augment.build(
        name, size=size, crop=settings.crop, flip=settings.flip, policy=settings.policy, cutout=settings.cutout
    )


def cosine_loss(network: CosineNetwork, batch: Batch, scale: float) -> Tensor:
    """Cross-entropy over cosine logits among all rows."""
    embeddings = distributed.all_gather_shards(network.encoder(batch["images"]), len(batch["labels"]))
    return F.cross_entropy(cosine_logits(embeddings, network.rows, scale), batch["labels"])


def pretrain(session: Session, settings: PretrainSettings, context: Context) -> CosineNetwork:
    """phi and W after cross-entropy on the base session; from the cache if the same was trained before."""
    engine, classes = context.engine, len(session.classes)
    torch.manual_seed(seed_for(engine.seed, "initialisation"))
    encoder = encoders.build(settings.encoder, context.mean, context.std)
    rows = torch.nn.init.kaiming_uniform_(torch.empty(classes, encoder.dim), a=5**0.5)
    network = CosineNetwork(encoder, rows).to(engine.device)
    encoder.autocast = engine.bfloat16

    own = {f.name: getattr(settings, f.name) for f in dataclasses.fields(PretrainSettings)}
    with encoder_cache.entry(own, context) as cached:
        if cached.load(network):
            return network
        train(network, session, settings, context)
        cached.save(network)
    return network


def train(network: CosineNetwork, session: Session, settings: PretrainSettings, context: Context) -> None:
    engine = context.engine
    check_batch(session, settings.batch)
    augmentation = build_augmentation(settings, settings.augmentation, session.images.shape[-1])
    per_epoch = steps_of_epoch(session, settings.batch)
    total, steps = settings.epochs * per_epoch, steps_of_segment(session, settings.batch, engine.segment_bytes)

    def items(segment: int) -> Items:
        first, last = segment * steps, min(total, (segment + 1) * steps)
        return items_of(session, settings.batch, lambda epoch: seed_for(engine.seed, "pretrain", epoch), first, last)

    def prepare(segment: int) -> Batch:
        following = items(segment + 1) if (segment + 1) * steps < total else None
        return augmented(session, items(segment), augmentation, following)

    network.train()
    engine.train(
        Stage(
            name="pretrain",
            module=network,
            groups=[ParameterGroup(list(network.parameters()), settings.lr)],
            schedule=cosine(total, settings.warmup * per_epoch),
            segments=-(-total // steps),
            steps=steps,
            prepare=prepare,
            loss=lambda batch: cosine_loss(network, batch, settings.scale),
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.nesterov,
        )
    )
