"""Pre-training on the base session: cross-entropy over cosine logits. All methods start from it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil import augment, encoders
from fscil.benchmark import Session
from fscil.engine import Stage, processes, seed_for
from fscil.engine.schedule import cosine
from fscil.engine.stage import Batch, ParameterGroup
from fscil.methods import encoder_cache
from fscil.methods.cosine_network import CosineNetwork, cosine_logits
from fscil.methods.method import Context
from fscil.settings import setting


@dataclass(frozen=True)
class PretrainSettings:
    encoder: str = setting("resnet20", "the benchmark's own network; resnet18 for larger images")
    augmentation: str = setting(
        "autoaug", "of pre-training: the paper's AutoAug, or its BasicAug", choices=("none", "basic", "autoaug")
    )
    crop: str = setting(
        "pad", "pad and crop for small images, random resized crop for photos", choices=("pad", "resized")
    )
    flip: bool = setting(True, "mirror images at random; off where left and right matter, as in writing")
    policy: str = setting("cifar10", "AutoAugment's policy", choices=("cifar10", "imagenet"))
    cutout: int = setting(0, "side of the square that autoaug blanks out, in pixels", least=0)
    epochs: int = setting(300, "the paper's", least=1)
    batch: int = setting(128, "the paper's; smaller base sessions take all they have", least=1)
    lr: float = setting(0.1, "the paper's", least=0)
    momentum: float = setting(0.9, "the paper's", least=0)
    nesterov: bool = setting(True, "as the released code; the paper does not say")
    weight_decay: float = setting(5e-4, "as the released code; the paper does not say", least=0)
    warmup: int = setting(0, "epochs of linear warm-up; short trainings need it to start at all", least=0)
    scale: float = setting(16.0, "of cosine logits, in pre-training and wherever logits are cosines", least=0)


def epoch_order(session: Session, batch: int, seed: int) -> Tensor:
    """Which images an epoch's steps take, int64 [steps, batch]; what does not fill a batch waits for the next epoch."""
    batch = min(batch, len(session.labels))
    steps = len(session.labels) // batch
    order = augment.shuffled(len(session.labels), seed, session.labels.device)
    return order[: steps * batch].view(steps, batch)


def augmented(session: Session, order: Tensor, augmentation: augment.Augment, seed: int) -> Batch:
    """Images and labels of the steps in order [steps, batch], each augmented as its place in the session says.

    Of several processes each gets its share of every step's images, and all labels.
    """
    mine = order[:, processes.share(order.shape[1])]
    images = augmentation(session.images[mine.flatten()], augment.keys_for(mine.flatten(), seed + 1))
    return {"images": images.unflatten(0, mine.shape), "labels": session.labels[order]}


def epoch_batches(session: Session, batch: int, augmentation: augment.Augment, seed: int) -> Batch:
    """A shuffled, augmented epoch as [steps, batch, ...]."""
    return augmented(session, epoch_order(session, batch, seed), augmentation, seed)


def build_augmentation(settings: PretrainSettings, name: str, size: int) -> augment.Augment:
    return augment.build(
        name, size=size, crop=settings.crop, flip=settings.flip, policy=settings.policy, cutout=settings.cutout
    )


def cosine_loss(network: CosineNetwork, batch: Batch, scale: float) -> Tensor:
    """Cross-entropy over cosine logits among all rows."""
    embeddings = processes.gathered(network.encoder(batch["images"]), len(batch["labels"]))
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
    augmentation = build_augmentation(settings, settings.augmentation, session.images.shape[-1])
    steps = max(1, len(session.labels) // settings.batch)

    def prepare(epoch: int) -> Batch:
        return epoch_batches(session, settings.batch, augmentation, seed_for(engine.seed, "pretrain", epoch))

    network.train()
    engine.train(
        Stage(
            name="pretrain",
            module=network,
            groups=[ParameterGroup(list(network.parameters()), settings.lr)],
            schedule=cosine(settings.epochs * steps, settings.warmup * steps),
            segments=settings.epochs,
            steps=steps,
            prepare=prepare,
            loss=lambda batch: cosine_loss(network, batch, settings.scale),
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.nesterov,
        )
    )
