"""Training on a session with plenty of images: cross-entropy over cosine logits. All methods start from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil import augment, distributed, encoders
from fscil import model as models
from fscil.benchmark import Session
from fscil.code_version import digest_of_sources
from fscil.engine import seed_for
from fscil.engine.schedule import Schedule, cosine, decay_at
from fscil.engine.stage import Batch, ParameterGroup
from fscil.errors import UserError
from fscil.methods import encoder_cache
from fscil.methods.method import Context
from fscil.methods.training import (
    MOST_STEPS,
    SGD,
    check_batch,
    check_steps,
    milestones_of,
    steps_of_epoch,
    train,
)
from fscil.methods.turned import TurnedBatches, check_turned, rows_for_turned
from fscil.model import Model, ModelSpec
from fscil.settings import setting

HIGHEST_RATE = 1000  # a learning rate beyond this cannot be meant


@dataclass(frozen=True)
class PretrainSettings:
    recipe: str = setting(
        "none", "length, batch size, rates and the like under one name; each can still be set separately"
    )
    encoder: str = setting(
        "resnet20", "the network that embeds images; `fscil encoders` lists them", origin="the field's for CIFAR100"
    )
    weights: str = setting("none", "what the encoder starts from: none, imagenet, or a file of weights")
    input_size: int = setting(
        0, "pixels per side that the encoder sees; 0: what suits dataset and encoder", least=0, most=4096
    )
    augmentation: str = setting(
        "autoaug",
        "of pre-training; autoaug and basic are the paper's AutoAug and BasicAug",
        choices=("none", "basic", "autoaug"),
    )
    crop: str = setting(
        "pad", "pad and crop for small images, random resized crop for photos", choices=("pad", "resized")
    )
    crop_scale: float = setting(0.08, "smallest share of an image's area that crop=resized takes", least=0.01, most=1)
    flip: bool = setting(True, "mirror images at random; off if left and right matter, as in writing")
    policy: str = setting("cifar10", "AutoAugment's policy", choices=("cifar10", "imagenet"))
    cutout: int = setting(0, "side of the square that autoaug blanks out, in pixels", least=0, most=4096)
    epochs: int = setting(
        300, "passes over the base session; 0: set by steps", origin="the paper's", least=0, most=MOST_STEPS
    )
    steps: int = setting(
        0, "of the optimiser, if epochs is 0; rounded to whole epochs, at least one", least=0, most=MOST_STEPS
    )
    batch: int = setting(
        128, "images per step; smaller base sessions use all they have", origin="the paper's", least=1, most=1_000_000
    )
    lr: float = setting(
        0.1, "highest learning rate, from which it decays to 0", origin="the paper's", least=0, most=HIGHEST_RATE
    )
    head_lr: float = setting(
        0.0, "the same for the classifier's rows (and calibrator) in pre-training; 0: lr", least=0, most=HIGHEST_RATE
    )
    momentum: float = setting(0.9, "of SGD", origin="the paper's", least=0, most=1)
    nesterov: bool = setting(True, "Nesterov's momentum", origin="the released code's; the paper does not say")
    weight_decay: float = setting(
        5e-4, "of SGD", origin="the released code's; the paper does not say", least=0, most=HIGHEST_RATE
    )
    warmup: int = setting(
        0, "epochs of linear warm-up; short trainings need it to start at all", least=0, most=MOST_STEPS
    )
    milestones: str = setting(
        "", "epochs after which lr falls to a tenth, as in 60,70; empty: it decays to 0 along half a cosine"
    )
    label_smoothing: float = setting(
        0.0,
        "share of a label that pre-training spreads evenly over all classes; none in losses of a method's own",
        least=0,
        most=0.99,
    )
    turned: float = setting(
        0.0,
        "share of images that pre-training turns by 90, 180 or 270 degrees; what is turned is a class of its own",
        least=0,
        most=0.9,
    )
    scale: float = setting(16.0, "of cosine logits, in pre-training and wherever logits are cosines", least=0, most=1e6)

    def epochs_on(self, session: Session) -> int:
        return self.epochs or max(1, round(self.steps / steps_of_epoch(session, self.batch)))

    def warmup_steps(self, session: Session) -> int:
        """At most half of the training if its length is given in steps, since that may be a single epoch."""
        steps = self.warmup * steps_of_epoch(session, self.batch)
        return steps if self.epochs else min(steps, self.steps // 2)

    def schedule(self, session: Session) -> Schedule:
        per_epoch, warmup = steps_of_epoch(session, self.batch), self.warmup_steps(session)
        if milestones := milestones_of("milestones", self.milestones):
            return decay_at([epoch * per_epoch for epoch in milestones], warmup=warmup)
        return cosine(self.epochs_on(session) * per_epoch, warmup)

    @property
    def sgd(self) -> SGD:
        return SGD(self.momentum, self.weight_decay, self.nesterov)


@dataclass(frozen=True)
class Objective:
    """What base training minimises. Its name, with the settings, identifies its encoders in the cache."""

    name: str
    forward: Callable[[Model, Tensor], Any]  # the model's outputs, image by image
    loss: Callable[[Model, Any, Batch], Tensor]  # of a whole step's outputs


def cosine_objective(label_smoothing: float = 0.0) -> Objective:
    def loss(model: Model, embeddings: Tensor, batch: Batch) -> Tensor:
        logits = model.calibrator(model.rows, embeddings)
        return F.cross_entropy(logits, batch["labels"], label_smoothing=label_smoothing)

    return Objective("cosine", forward=lambda model, images: model.encoder(images), loss=loss)


COSINE = cosine_objective()  # with the settings' label smoothing where it is pretrain's objective


def parameter_groups(model: Model, settings: PretrainSettings) -> list[ParameterGroup]:
    if not settings.head_lr:
        return [ParameterGroup(list(model.parameters()), settings.lr)]
    head = [model.rows, *model.calibrator.parameters()]  # FACT's virtual prototypes, for instance
    return [ParameterGroup(list(model.encoder.parameters()), settings.lr), ParameterGroup(head, settings.head_lr)]


def pretrain(
    session: Session,
    settings: PretrainSettings,
    context: Context,
    *,
    name: str = "pretrain",
    start: Model | None = None,
    objective: Objective = COSINE,
) -> Model:
    """phi and W after training on the session; from the cache if the same model was trained before.

    A run may train several times, each time under another name. If a model to start from is given, such as one with
    extra rows or with the weights of an earlier session, training continues from it and is never cached.
    """
    check_batch(session, settings.batch)
    check_turned(min(settings.batch, len(session.labels)), settings.turned)
    if settings.turned and objective is not COSINE:
        raise UserError("turned is for pre-training with cross-entropy alone; set turned=0, also if a recipe has it")
    milestones_of("milestones", settings.milestones)
    check_steps(settings.epochs_on(session) * steps_of_epoch(session, settings.batch))
    model = start or new_model(session, settings, context)
    if start is not None:
        fit(model, session, settings, context, name, objective)
        return model.eval()
    # a custom objective may read any setting of its method; ours only reads those of pre-training
    known = PretrainSettings if objective is COSINE else type(settings)
    fields = [field.name for field in dataclasses.fields(known) if field.name not in ("recipe", "steps")]
    own = {field: getattr(settings, field) for field in fields}
    backbone = encoders.backbone(settings.encoder)
    facts = {
        **own,
        "epochs": settings.epochs_on(session),
        "weights": model.spec.weights.split()[-1],  # its checksum, wherever the file is
        "input_size": model.spec.input_size,
        "objective": objective.name,
        # these may come from another package
        "code": digest_of_sources(backbone, type(model.encoder.backbone), objective.forward, objective.loss),
        "package": getattr(backbone, "version", ""),
    }
    with encoder_cache.entry(facts, session, context, name) as cached:
        if not cached.load(model):
            fit(model, session, settings, context, name, objective)
            cached.save(model)
    return model.eval()


def new_model(session: Session, settings: PretrainSettings, context: Context) -> Model:
    """A model that has learned nothing yet, with a row for each of the session's classes."""
    torch.manual_seed(seed_for(context.engine.seed, "initialisation"))
    stored = session.images.shape[-1]
    mean, std = context.mean, context.std
    if settings.weights != "none":  # they expect pixels as in their own training
        mean, std = distributed.broadcast(lambda: encoders.normalisation(settings.encoder, settings.weights))
    spec = ModelSpec(
        encoder=settings.encoder,
        stored_size=stored,
        input_size=encoders.choose_input_size(settings.encoder, stored, settings.input_size),
        mean=mean,
        std=std,
        calibrator_options={"scale": settings.scale},
    )
    model = models.build(spec, len(session.classes), settings.weights).to(context.engine.device)
    model.encoder.autocast = context.engine.bfloat16
    return model


def build_augmentation(settings: PretrainSettings, name: str, model: Model) -> augment.Augment:
    return augment.build(
        name,
        size=model.spec.input_size,
        crop=settings.crop,
        crop_scale=settings.crop_scale,
        flip=settings.flip,
        policy=settings.policy,
        cutout=settings.cutout,
    )


def fit(
    model: Model, session: Session, settings: PretrainSettings, context: Context, name: str, objective: Objective
) -> None:
    engine = context.engine
    if objective is COSINE:
        objective = cosine_objective(settings.label_smoothing)
    data = TurnedBatches(
        session,
        settings.batch,
        settings.epochs_on(session),
        build_augmentation(settings, settings.augmentation, model),
        engine,
        name,
        share=settings.turned,
    )
    model.train()
    with rows_for_turned(model) if settings.turned else nullcontext():
        train(
            engine,
            name,
            model,
            data,
            forward=lambda images: objective.forward(model, images),
            loss=lambda outputs, batch: objective.loss(model, outputs, batch),
            groups=parameter_groups(model, settings),
            schedule=settings.schedule(session),
            sgd=settings.sgd,
        )
