"""LIMIT: meta-train on fake incremental tasks, calibrate old rows, new prototypes and the query together.

Zhou et al., "Few-Shot Class-Incremental Learning by Sampling Multi-Phase Tasks", TPAMI 2023; equations by its labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil import distributed
from fscil.augment import Augment
from fscil.benchmark import Session
from fscil.calibrators import Transformer
from fscil.engine import Stage, seed_for
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
from fscil.errors import UserError
from fscil.methods.cosine_network import CosineNetwork
from fscil.methods.decoupled_cosine import MIRROR, POWER, WHITEN, PrototypeMethod
from fscil.methods.pretrain import PretrainSettings, augmented, build_augmentation, check_batch, items_of, pretrain
from fscil.settings import setting


@dataclass(frozen=True)
class LimitSettings(PretrainSettings):
    tasks: str = setting(
        "fake",
        "what calibration learns from: fake tasks, or plain base batches (an ablation: nothing is replaced by "
        "prototypes, and the calibrator alone learns)",
        choices=("fake", "plain"),
    )
    fake_phases: int = setting(2, "C, the paper's", least=1)
    fake_way: int = setting(10, "N^; more classes a task than in the real sessions, as the paper found", least=1)
    fake_shot: int = setting(5, "K^, as in the real sessions", least=1)
    fake_queries: int = setting(2, "K' of every class seen; the paper only says that it can be large", least=1)
    fake_classes: str = setting(
        "mixed",
        "fake new classes are base classes (the paper), base classes rotated by 90, 180 or 270 degrees (as in CEC), or "
        "blends of two: those lie among the base rows, as real new classes do, so the calibrator learns to defend them",
        choices=("base", "mixed", "rotated"),
    )
    rows: str = setting(
        "means",
        "base classes' classifier rows before meta-training: trained (the paper), class means, or half of each at "
        "equal norm, which keeps old classes as means do and lifts new ones as trained rows do",
        choices=("trained", "means", "blend"),
    )
    logits: str = setting(
        "cosine", "inner product (the paper) or scale * cosine, as in pre-training", choices=("inner", "cosine")
    )
    power: float = setting(0.5, POWER, least=0.01)
    mirror: bool = setting(True, MIRROR)
    whiten: float = setting(1.0, WHITEN, least=0)
    dropout: float = setting(0.0, "in the calibrator; 0.5 in the paper, where the encoder learns, too", least=0, most=1)
    meta_steps: int = setting(1000, "iterations; the paper does not say", least=1)
    meta_batch_steps: int = setting(
        50, "iterations whose fake tasks are sampled and augmented together; fewer, if segment_mib says so", least=1
    )
    encoder_lr: float = setting(
        0.0,
        "2e-4 in the paper; 0 fixes the encoder, so that whitened embeddings stay so, and embeds the base session once",
        least=0,
    )
    rows_lr: float = setting(2e-4, "the paper's", least=0)
    calibrator_lr: float = setting(
        2e-2, "it starts from nothing, so it learns faster than what is pre-trained", least=0
    )
    halve_every: int = setting(
        500, "iterations after which all learning rates are halved; 1000 in the paper, 0 for never", least=0
    )
    meta_augmentation: str = setting(
        "same", "of fake tasks; by default that of pre-training", choices=("same", "none", "basic", "autoaug")
    )
    bn: str = setting(
        "frozen",
        "BN statistics while meta-training: those of pre-training, or each fake task's own",
        choices=("frozen", "batch"),
    )
    calibration_memory: float = setting(
        32.0,
        "MiB that calibration works in, beside what it keeps of the classes; less is slower with many classes, more is "
        "not faster, and the results are the same",
        least=0.001,
    )
    base_margin: float = setting(0.4, "subtracted from base classes' logits, for the sake of new ones; 0 in the paper")


Prepare = Callable[[int], Batch]
Loss = Callable[[Batch], Tensor]


class LimitNetwork(CosineNetwork):
    def __init__(self, pretrained: CosineNetwork, rows: Tensor, calibrator: Transformer) -> None:
        super().__init__(pretrained.encoder, rows, pretrained.power, pretrained.mirror)
        self.whitening.copy_(pretrained.whitening)
        self.calibrator = calibrator


class Limit(PrototypeMethod):
    Settings: ClassVar[type] = LimitSettings
    settings: LimitSettings
    network: LimitNetwork

    @property
    def shape(self) -> TaskShape:
        s = self.settings
        return TaskShape(s.fake_phases, s.fake_way, s.fake_shot, s.fake_queries, new_classes=s.fake_classes)

    def check(self, session: Session) -> None:
        """What cannot be meta-trained is refused before the long pre-training, not after it."""
        settings = self.settings
        if settings.tasks == "plain":
            check_batch(session, settings.batch)
        else:
            check_tasks(self.shape, session, encoder_learns=settings.encoder_lr > 0)
        if settings.calibrator_lr == 0 and (settings.tasks == "plain" or settings.encoder_lr == settings.rows_lr == 0):
            raise UserError("nothing is left to meta-train: every learning rate is 0; raise calibrator_lr")

    def learn_base(self, session: Session) -> None:
        self.check(session)
        pretrained = pretrain(session, self.settings, self.context)
        self.base_classes = len(session.classes)
        torch.manual_seed(seed_for(self.engine.seed, "calibrator"))
        cosine = self.settings.logits == "cosine"
        calibrator = Transformer(
            pretrained.encoder.dim,
            dropout=self.settings.dropout,
            cosine=cosine,
            scale=self.settings.scale if cosine else 1.0,
            memory=self.settings.calibration_memory,
        )
        self.network = LimitNetwork(pretrained, self.base_rows(pretrained, session), calibrator)
        self.network.to(self.engine.device)
        self._meta_train(session)

    # -- Algorithm 2 ---------------------------------------------------------------------------------------------
    def _meta_train(self, session: Session) -> None:
        """Solve Eq. (9) over encoder, classifier rows and calibrator."""
        settings, network, engine = self.settings, self.network, self.engine
        learning_rates = {
            network.encoder: settings.encoder_lr if settings.tasks == "fake" else 0.0,
            network.calibrator: settings.calibrator_lr,
        }
        groups = [ParameterGroup(list(module.parameters()), lr) for module, lr in learning_rates.items() if lr > 0]
        if settings.rows_lr > 0 and settings.tasks == "fake":
            groups.append(ParameterGroup([network.rows], settings.rows_lr))
        learning = {id(p) for group in groups for p in group.parameters}
        for parameter in network.parameters():
            parameter.requires_grad_(id(parameter) in learning)

        network.train()
        if settings.bn == "frozen" or learning_rates[network.encoder] == 0:
            network.encoder.eval()
        step_bytes = self._images_of_step() * session.images.shape[1:].numel()
        steps = steps_at_once(settings.meta_steps, step_bytes, engine.segment_bytes, settings.meta_batch_steps)
        prepare, loss = self._fake_tasks(session, steps) if settings.tasks == "fake" else self._plain(session, steps)
        engine.train(
            Stage(
                name="meta-train",
                module=network,
                groups=groups,
                schedule=decay_every(settings.halve_every),
                segments=-(-settings.meta_steps // steps),
                steps=steps,
                prepare=prepare,
                loss=loss,
                momentum=settings.momentum,
                weight_decay=settings.weight_decay,
                nesterov=settings.nesterov,
            )
        )
        network.requires_grad_(False).eval()

    def _images_of_step(self) -> int:
        """None, where embeddings are learned from."""
        if self.settings.tasks == "plain":
            return self.settings.batch
        return images_of_step(self.shape, self.base_classes) if self.settings.encoder_lr > 0 else 0

    def _fake_tasks(self, session: Session, steps: int) -> tuple[Prepare, Loss]:
        settings, network, engine, shape = self.settings, self.network, self.engine, self.shape
        augmentation = self._augmentation(session)
        source: ImageTasks | EmbeddingTasks
        if settings.encoder_lr > 0:
            source = ImageTasks(session, shape, augmentation)
        else:
            seed = seed_for(engine.seed, "embeddings")
            source = EmbeddingTasks(session, shape, augmentation, network.embed_here, seed)
        labels = query_labels(shape, self.base_classes, engine.device)
        parts = sizes(shape, self.base_classes)

        def prepare(segment: int) -> Batch:
            left = settings.meta_steps - segment * steps  # the last segment may be shorter
            return source.sample(min(steps, left), seed_for(engine.seed, "meta-train", segment))

        def loss(batch: Batch) -> Tensor:
            if "images" in batch:
                embeddings = distributed.all_gather_shards(network(batch["images"]), sum(parts))
            else:
                embeddings = batch["embeddings"]
            supports, *queries = embeddings.split(parts)
            prototypes = supports.view(shape.phases, shape.way, shape.shot, -1).mean(2)  # Eq. (prototype)
            W = network.rows.index_select(0, batch["old_classes"])
            total = torch.zeros((), device=engine.device)
            for c in range(shape.phases):
                W = torch.cat([W, prototypes[c]])  # Eq. (5): prototypes of earlier phases stay
                asked = torch.cat(queries[2 * c : 2 * c + 2])
                total = total + F.cross_entropy(network.calibrator(W, asked), labels[c])
            return total  # Eq. (9): the sum over the phases

        return prepare, loss

    def _augmentation(self, session: Session) -> Augment:
        own = self.settings.meta_augmentation
        return build_augmentation(
            self.settings, self.settings.augmentation if own == "same" else own, session.images.shape[-1]
        )

    def _plain(self, session: Session, steps: int) -> tuple[Prepare, Loss]:
        """The ablation's "+ calibration": ordinary base batches, calibrated with the rows as they are."""
        settings, network, engine = self.settings, self.network, self.engine
        augmentation = self._augmentation(session)

        def prepare(segment: int) -> Batch:
            def seed(epoch: int) -> int:
                return seed_for(engine.seed, "meta-train", segment, epoch)

            left = settings.meta_steps - segment * steps
            return augmented(session, items_of(session, settings.batch, seed, 0, min(steps, left)), augmentation)

        def loss(batch: Batch) -> Tensor:
            with torch.no_grad():
                embeddings = distributed.all_gather_shards(network(batch["images"]), len(batch["labels"]))
            return F.cross_entropy(network.calibrator(network.rows, embeddings), batch["labels"])

        return prepare, loss

    # -- inference -----------------------------------------------------------------------------------------------
    @torch.no_grad()
    def classify(self, embeddings: Tensor) -> Tensor:
        """Calibrate every query with all rows seen so far, as in meta-training."""
        logits = self.network.calibrator.predict(self.network.rows, embeddings)
        logits[:, : self.base_classes].sub_(self.settings.base_margin)
        return logits
