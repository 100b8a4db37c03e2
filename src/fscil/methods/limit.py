"""LIMIT: meta-train on fake incremental tasks, calibrate old rows, new prototypes and the query together.

Zhou et al., "Few-Shot Class-Incremental Learning by Sampling Multi-Phase Tasks", TPAMI 2023; equations have its labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil import calibrators, distributed
from fscil.benchmark import Session
from fscil.engine import seed_for
from fscil.engine.schedule import decay_every
from fscil.engine.stage import Batch, ParameterGroup, steps_at_once
from fscil.episodes import (
    EmbeddingTasks,
    ImageTasks,
    TaskShape,
    check_tasks,
    images_of_step,
    query_labels,
    sizes,
)
from fscil.errors import CannotLearn, UserError
from fscil.methods.calibration_check import choose_calibrator
from fscil.methods.pretrain import HIGHEST_RATE, PretrainSettings, build_augmentation, pretrain
from fscil.methods.prototypes import EmbeddingSettings, PrototypeMethod
from fscil.methods.training import MOST_STEPS, Iterations, Loss, augmented, check_batch, items_of, train
from fscil.settings import setting

UNTRAINED = ("cosine", "paired")  # calibrators without parameters: no meta-training


@dataclass(frozen=True)
class LimitSettings(EmbeddingSettings, PretrainSettings):
    """The defaults are the paper's algorithm; what it leaves open was chosen on base classes of CIFAR100."""

    calibrator: str = setting(
        "transformer",
        "the set function over rows and query: transformer (the paper's), paired (two numbers) or cosine (none); "
        "with check=true several, as in paired,transformer",
        origin="the paper's",
    )
    check: bool = setting(
        False,
        "first try the calibrators on an inner benchmark of the base classes, and use the best one if it has more area "
        "than class means on the same embedding; trains a second encoder",
    )
    tasks: str = setting(
        "fake",
        "what is learned from after pre-training: fake tasks, or plain base batches (an ablation: no row is replaced "
        "by a prototype)",
        choices=("fake", "plain"),
    )
    fake_phases: int = setting(2, "C, phases of a fake task", origin="the paper's", least=1, most=10_000)
    fake_way: int = setting(5, "N^, new classes per phase, as in the paper's study of phases", least=1, most=10_000)
    fake_shot: int = setting(5, "K^, supports of a new class, as in the paper's study of phases", least=1, most=10_000)
    fake_queries: int = setting(
        2, "K', queries of every class seen; the paper says it can be large", least=1, most=10_000
    )
    fake_classes: str = setting(
        "base",
        "fake new classes are base classes (the paper), blends of two, beside which all base rows stay, or base "
        "classes rotated by quarter turns (CEC)",
        origin="the paper's",
        choices=("base", "mixed", "rotated"),
    )
    rows: str = setting(
        "trained",
        "base classes' classifier rows before meta-training: trained (the paper) or class means",
        origin="the paper's",
        choices=("trained", "means"),
    )
    logits: str = setting(
        "inner",
        "inner product (the paper) or scale * cosine, as in pre-training",
        origin="the paper's",
        choices=("inner", "cosine"),
    )
    inner_scale: float = setting(
        0.25,
        "of inner products, 1 in the paper; a quarter of them start at pre-training's 16 cosines if d = 64",
        least=0,
        most=1e6,
    )
    trust: float = setting(
        1.0, "of calibrator=paired in trained rows, when it chooses among base classes", least=0, most=1e6
    )
    common: float = setting(0.0, "share of the rows' mean that calibrator=paired takes from a query", least=0, most=1e6)
    dropout: float = setting(0.5, "in the transformer", origin="the paper's", least=0, most=1)
    meta_steps: int = setting(5000, "iterations of meta-training; the paper does not say", least=1, most=MOST_STEPS)
    meta_batch_steps: int = setting(
        50,
        "iterations whose fake tasks are sampled and augmented together; fewer if segment_mib demands it",
        least=1,
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

    @property
    def shape(self) -> TaskShape:
        return TaskShape(self.fake_phases, self.fake_way, self.fake_shot, self.fake_queries, self.fake_classes)

    @property
    def calibrators(self) -> list[str]:
        return list(dict.fromkeys(name.strip() for name in self.calibrator.split(",")))

    def calibrator_options(self, name: str) -> dict[str, Any]:
        if name == "cosine":
            return {"scale": self.scale}
        if name == "paired":
            return {"scale": self.scale, "trust": self.trust, "common": self.common}
        cosine = self.logits == "cosine"
        return {"dropout": self.dropout, "cosine": cosine, "scale": self.scale if cosine else self.inner_scale}


class Limit(PrototypeMethod):
    """Meta-trained on fake tasks; calibrates rows and query."""

    Settings: ClassVar[type] = LimitSettings
    settings: LimitSettings
    later: Sequence[Session] = ()  # the few-shot sessions, which the check of calibration imitates

    def check_sessions(self, sessions: Sequence[Session]) -> None:
        super().check_sessions(sessions)
        self.later = sessions[1:]

    def refuse_impossible(self, session: Session) -> None:
        """Refuse what cannot be meta-trained before the long pre-training, not after it."""
        settings = self.settings
        for name in settings.calibrators:  # refuses invalid names and options
            calibrators.build(name, 4, **settings.calibrator_options(name))
        if len(settings.calibrators) > 1 and not settings.check:
            raise UserError(f"calibrator={settings.calibrator} names several; set check=true, or name one")
        if settings.check or settings.calibrators[0] in UNTRAINED:
            return  # the check leaves out what cannot be trained
        if settings.tasks == "plain":
            check_batch(session, settings.batch)
        else:
            check_tasks(settings.shape, session, encoder_learns=settings.encoder_lr > 0)
        if settings.calibrator_lr == settings.encoder_lr == settings.rows_lr == 0:
            raise CannotLearn("nothing is left to meta-train: every learning rate is 0; raise calibrator_lr")

    def learn_base(self, session: Session) -> None:
        self.refuse_impossible(session)
        calibrator: str | None = self.settings.calibrators[0]
        if self.settings.check:
            verdict = choose_calibrator(self, session, self.later)
            calibrator, said = distributed.broadcast(lambda: verdict)  # rounding must not divide the ranks
            self.notes.append(said)
            self.engine.console.print(said, highlight=False, soft_wrap=True)
        self.model = pretrain(session, self.settings, self.context)
        self.calibrate(session, calibrator)

    def calibrate(self, session: Session, name: str | None) -> None:
        """Give the pre-trained model its rows and a calibrator, and meta-train; None leaves it with class means."""
        settings, model = self.settings, self.model
        trained = model.rows.detach().clone()
        model.rows.data = self.base_rows(model, session, settings.rows if name else "means")
        if name is None:
            return
        torch.manual_seed(seed_for(self.engine.seed, "calibrator"))
        model.set_calibrator(name, **settings.calibrator_options(name))
        if model.calibrator.two_inputs:
            model.rows.data = torch.cat([model.rows.data, trained], 1)
        if name not in UNTRAINED:
            self._meta_train(session)

    # -- Algorithm 2 ---------------------------------------------------------------------------------------------
    def _meta_train(self, session: Session) -> None:
        """Solve Eq. (9) over encoder, classifier rows and calibrator."""
        settings, model, engine = self.settings, self.model, self.engine
        fake = settings.tasks == "fake"
        learning_rates = [(list(model.encoder.parameters()), settings.encoder_lr)]
        learning_rates += [(list(model.calibrator.parameters()), settings.calibrator_lr)]
        learning_rates += [([model.rows], settings.rows_lr)]
        groups = [ParameterGroup(parameters, lr) for parameters, lr in learning_rates if lr > 0]
        learning = {id(p) for group in groups for p in group.parameters}
        for parameter in model.parameters():
            parameter.requires_grad_(id(parameter) in learning)
        model.train()
        model.encoder.eval()  # BN keeps the statistics of pre-training
        train(
            engine,
            "meta-train",
            model,
            self._fake_tasks(session) if fake else self._plain_batches(session),
            forward=model.features,
            loss=self._phases_loss(session) if fake else self._plain_loss,
            groups=groups,
            schedule=decay_every(settings.halve_every),
            sgd=settings.sgd,
        )
        model.requires_grad_(False).eval()

    def _fake_tasks(self, session: Session) -> Iterations:
        """As images if the encoder learns; otherwise as embeddings, which are computed once."""
        shape, engine, base = self.settings.shape, self.engine, len(session.classes)
        augmentation = build_augmentation(self.settings, self.settings.augmentation, self.model)
        tasks: ImageTasks | EmbeddingTasks
        if self.settings.encoder_lr > 0:
            tasks = ImageTasks(session, shape, augmentation)
            step_bytes = images_of_step(shape, base) * session.images.shape[1:].numel()
        else:
            seed = seed_for(engine.seed, "embeddings")
            tasks = EmbeddingTasks(session, shape, augmentation, self.model.embed_here, seed)
            step_bytes = sum(sizes(shape, base)) * self.model.rows.shape[1] * 4  # of float32

        def draw(steps: int, segment: int) -> Batch:
            return tasks.sample(steps, seed_for(engine.seed, "meta-train", segment))

        return Iterations(self.settings.meta_steps, self._at_once(step_bytes), sum(sizes(shape, base)), draw)

    def _plain_batches(self, session: Session) -> Iterations:
        """The ablation's "calibration" learns from ordinary base batches."""
        engine, batch = self.engine, self.settings.batch
        augmentation = build_augmentation(self.settings, self.settings.augmentation, self.model)

        def draw(steps: int, segment: int) -> Batch:
            def seed(epoch: int) -> int:
                return seed_for(engine.seed, "meta-train", segment, epoch)

            return augmented(session, items_of(session, batch, seed, 0, steps), augmentation)

        step_images = min(batch, len(session.labels))
        step_bytes = batch * session.images.shape[1:].numel()
        return Iterations(self.settings.meta_steps, self._at_once(step_bytes), step_images, draw)

    def _at_once(self, step_bytes: int) -> int:
        """How many iterations are prepared together."""
        most = self.settings.meta_batch_steps
        return steps_at_once(self.settings.meta_steps, step_bytes, self.engine.segment_bytes, most)

    def _phases_loss(self, session: Session) -> Loss:
        shape, model, device = self.settings.shape, self.model, self.engine.device
        labels = query_labels(shape, len(session.classes), device)
        parts = sizes(shape, len(session.classes))

        def loss(embeddings: Tensor, batch: Batch) -> Tensor:
            supports, *queries = embeddings.split(parts)
            prototypes = supports.view(shape.phases, shape.way, shape.shot, -1).mean(2)  # Eq. (prototype)
            W = model.rows.index_select(0, batch["old_classes"])
            total = torch.zeros((), device=device)
            for c in range(shape.phases):
                W = torch.cat([W, prototypes[c]])  # Eq. (5): prototypes of earlier phases stay
                asked = torch.cat(queries[2 * c : 2 * c + 2])
                total = total + F.cross_entropy(model.calibrator(W, asked), labels[c])
            return total  # Eq. (9): the sum over the phases

        return loss

    def _plain_loss(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Calibrated with the rows as they are: no row is replaced by a prototype."""
        return F.cross_entropy(self.model.calibrator(self.model.rows, embeddings), batch["labels"])
