"""Meta-training, which LIMIT and CEC share: tasks of base classes teach the encoder, the rows and the calibrator."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fscil.augment import Augment
from fscil.benchmark import Session
from fscil.engine.schedule import Schedule, decay_at, decay_every
from fscil.engine.stage import Batch, ParameterGroup, steps_at_once
from fscil.errors import CannotLearn
from fscil.methods.pretrain import HIGHEST_RATE, PretrainSettings, build_augmentation
from fscil.methods.prototypes import EmbeddingSettings, PrototypeMethod, class_means
from fscil.methods.training import MOST_STEPS, Iterations, Loss, milestones_of, train
from fscil.settings import setting


@dataclass(frozen=True)
class MetaSettings(EmbeddingSettings, PretrainSettings):
    tasks: str = setting(
        "fake",
        "what is learned from after pre-training: fake tasks (FIT, LIMIT's Algorithm 1), or pseudo-incremental ones "
        "(PIL, CEC's), whose rows are all prototypes, half of them of rotated images",
        choices=("fake", "pseudo"),
    )
    fake_phases: int = setting(
        2, "C, phases of a fake task; a pseudo-incremental one has one", origin="the paper's", least=1, most=10_000
    )
    fake_way: int = setting(5, "N^, new classes per phase, 5 as in the paper's study of phases", least=1, most=10_000)
    fake_shot: int = setting(
        5, "K^, supports of a new class, 5 as in the paper's study of phases", least=1, most=10_000
    )
    fake_queries: int = setting(
        2, "K', queries of every class seen; the paper says it can be large", least=1, most=10_000
    )
    fake_classes: str = setting(
        "base",
        "with tasks=fake: fake new classes are base classes (the paper), blends of two, beside which all base rows "
        "stay, or base classes rotated by quarter turns, likewise",
        origin="the paper's",
        choices=("base", "mixed", "rotated"),
    )
    meta_steps: int = setting(5000, "iterations of meta-training; the paper does not say", least=1, most=MOST_STEPS)
    meta_batch_steps: int = setting(
        50,
        "iterations whose tasks are sampled and augmented together; fewer if segment_mib demands it",
        least=1,
        most=MOST_STEPS,
    )
    meta_augmentation: str = setting(
        "same",
        "of meta-training, if the encoder learns: the same as of pre-training, or none, basic or autoaug; the paper "
        "does not say",
        choices=("same", "none", "basic", "autoaug"),
    )
    augmented_steps: int = setting(
        0,
        "iterations of meta-training after which images are no longer augmented, if the encoder learns; 0: they always "
        "are",
        least=0,
        most=MOST_STEPS,
    )
    refresh_every: int = setting(
        0,
        "iterations after which base rows become class means of the encoder as it is then; 0: never",
        least=0,
        most=MOST_STEPS,
    )
    encoder_lr: float = setting(
        2e-4,
        "learning rate of the encoder; 0 fixes it, as whitened embeddings need",
        origin="the paper's",
        least=0,
        most=HIGHEST_RATE,
    )
    rows_lr: float = setting(2e-4, "learning rate of the rows", origin="the paper's", least=0, most=HIGHEST_RATE)
    calibrator_lr: float = setting(
        2e-4, "learning rate of the calibrator", origin="the paper's", least=0, most=HIGHEST_RATE
    )
    halve_every: int = setting(
        1000,
        "iterations after which all learning rates are halved; 0: never",
        origin="the paper's",
        least=0,
        most=MOST_STEPS,
    )
    meta_milestones: str = setting(
        "", "iterations at which all learning rates are multiplied by meta_decay, as in 468,936; then set halve_every=0"
    )
    meta_decay: float = setting(0.3, "see meta_milestones", origin="the released code's", least=0, most=1)

    @property
    def meta_schedule(self) -> Schedule:
        halving = decay_every(self.halve_every)
        steps = decay_at(milestones_of("meta_milestones", self.meta_milestones), self.meta_decay)
        return lambda step: halving(step) * steps(step)


@dataclass(frozen=True)
class Tasks:
    """What meta-training learns from."""

    data: Iterations
    loss: Loss


class MetaTrained(PrototypeMethod):
    """A method whose model is meta-trained after pre-training."""

    settings: MetaSettings

    def check_rates(self) -> None:
        """Refuse a meta-training that cannot learn anything."""
        settings = self.settings
        milestones_of("meta_milestones", settings.meta_milestones)
        rates = [settings.calibrator_lr, settings.encoder_lr, settings.rows_lr if self.rows_take_part else 0]
        if not any(rates):
            raise CannotLearn("nothing is left to meta-train: every learning rate is 0; raise calibrator_lr")

    @property
    def rows_take_part(self) -> bool:
        """Pseudo-incremental tasks have prototypes in place of the classifier's rows."""
        return self.settings.tasks != "pseudo"

    def meta_train(self, session: Session, tasks: Tasks) -> None:
        """Minimise the tasks' loss over encoder, classifier rows and calibrator (LIMIT's Algorithm 2)."""
        settings, model = self.settings, self.model
        learning_rates = [(list(model.encoder.parameters()), settings.encoder_lr)]
        learning_rates += [(list(model.calibrator.parameters()), settings.calibrator_lr)]
        learning_rates += [([model.rows], settings.rows_lr if self.rows_take_part else 0)]
        groups = [ParameterGroup(parameters, lr) for parameters, lr in learning_rates if lr > 0]
        learning = {id(p) for group in groups for p in group.parameters}
        for parameter in model.parameters():
            parameter.requires_grad_(id(parameter) in learning)
        model.train()
        model.encoder.eval()  # BN keeps the statistics of pre-training
        train(
            self.engine,
            "meta-train",
            model,
            tasks.data,
            forward=model.features,
            loss=tasks.loss,
            groups=groups,
            schedule=settings.meta_schedule,
            sgd=settings.sgd,
            after=self._refresh_in(session, tasks.data) if settings.refresh_every and self.rows_take_part else None,
        )
        model.requires_grad_(False).eval()
        if not self.rows_take_part:
            self.refresh(session)

    def refresh(self, session: Session) -> None:
        """Make base rows class means, in place: a captured step keeps reading them."""
        means = class_means(self.embed(session.images), session.labels, session.classes)
        self.model.rows.data.copy_(means)

    def _refresh_in(self, session: Session, data: Iterations) -> Callable[[int], None]:
        def after(segment: int) -> None:
            done = min((segment + 1) * data.segment_steps, data.iterations)
            if done % self.settings.refresh_every == 0:
                self.refresh(session)

        return after

    # -- what the kinds of tasks need to prepare their data -----------------------------------------------------------
    def iterations(self, step_bytes: int, step_images: int, draw: Callable[[int, int, int], Batch]) -> Iterations:
        """draw(steps, first, segment) -> batches of so many steps, of which the first is given."""
        settings = self.settings
        most, limit = settings.meta_batch_steps, self.engine.segment_bytes
        at_once = steps_at_once(settings.meta_steps, step_bytes, limit, most)
        if period := math.gcd(settings.refresh_every, settings.augmented_steps):  # happen between segments only
            at_once = max(n for n in range(1, min(at_once, period) + 1) if period % n == 0)

        def prepare(steps: int, segment: int) -> Batch:
            return draw(steps, segment * at_once, segment)

        return Iterations(settings.meta_steps, at_once, step_images, prepare)

    def augmentations(self) -> tuple[Augment, Augment]:
        """Of the first augmented_steps, and of those after them."""
        settings, model = self.settings, self.model
        name = settings.augmentation if settings.meta_augmentation == "same" else settings.meta_augmentation
        usual = build_augmentation(settings, name, model)
        return usual, build_augmentation(settings, "none", model) if settings.augmented_steps else usual

    def is_late(self, first: int) -> bool:
        """Whether a segment that begins with this step is no longer augmented."""
        return 0 < self.settings.augmented_steps <= first
