"""LIMIT: meta-train on fake incremental tasks, calibrate old rows, new prototypes and the query together.

Zhou et al., "Few-Shot Class-Incremental Learning by Sampling Multi-Phase Tasks", TPAMI 2023; equations have its labels.
Algorithm 1 is in episodes/, Eq. (9) in fake_tasks.py, the optimisation of Algorithm 2 in meta_training.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fscil import calibrators, distributed
from fscil.benchmark import Session
from fscil.engine import seed_for
from fscil.errors import UserError
from fscil.methods.base_batches import check_batches, plain_tasks, replaced_tasks
from fscil.methods.calibration_check import choose_calibrator
from fscil.methods.fake_tasks import check_sampled, sampled_tasks
from fscil.methods.meta_training import MetaSettings, MetaTrained
from fscil.methods.pretrain import pretrain
from fscil.settings import setting

UNTRAINED = ("cosine", "paired")  # calibrators without parameters: no meta-training


@dataclass(frozen=True)
class LimitSettings(MetaSettings):
    """The defaults are the paper's algorithm; what it leaves open was chosen on base classes of CIFAR100."""

    calibrator: str = setting(
        "transformer",
        "the set function over rows and query: transformer (the paper's), deep-sets, bi-lstm, graph (rows alone), "
        "paired (two numbers) or cosine (none); with check=true several, as in paired,transformer",
        origin="the paper's",
    )
    check: bool = setting(
        False,
        "first try the calibrators on an inner benchmark of the base classes, and use the best one if it has more area "
        "than class means on the same embedding; trains a second encoder",
    )
    tasks: str = setting(
        "fake",
        "what is learned from after pre-training: fake tasks (FIT, Algorithm 1); pseudo-incremental ones (PIL, CEC's), "
        "whose rows are all prototypes, half of them of rotated images; base batches after the rows of fake_way "
        "classes were replaced by prototypes (the released code); or plain base batches (an ablation)",
        origin="the paper's",
        choices=("fake", "pseudo", "replaced", "plain"),
    )
    recursion: int = setting(
        1,
        "how often meta-training on base batches calibrates a query again, with a loss each time (the released code "
        "32 times); predictions do so once",
        origin="the paper's",
        least=1,
        most=1000,
    )
    placeholders: bool = setting(
        False,
        "classes of later sessions take part in attention before they are taught, as rows that start at 0 (the "
        "released code); tells the transformer how many there will be",
        origin="the paper's",
    )
    rows: str = setting(
        "trained",
        "base classes' classifier rows before meta-training: trained (the paper) or class means; after "
        "tasks=pseudo, which do not use them, they are class means",
        origin="the paper's",
        choices=("trained", "means"),
    )
    logits: str = setting(
        "inner",
        "inner product (the paper), scale * cosine, as in pre-training, or unit-rows: the inner product with rows of "
        "length 1 (the released code on CUB200 and miniImageNet)",
        origin="the paper's",
        choices=("inner", "cosine", "unit-rows"),
    )
    inner_scale: float = setting(
        0.0,
        "of inner products; the paper has none. 0: scale / d, or scale / sqrt(d) with unit-rows, with which they start "
        "where pre-training's cosines ended",
        least=0,
        most=1e6,
    )
    trust: float = setting(
        1.0, "of calibrator=paired in trained rows, when it chooses among base classes", least=0, most=1e6
    )
    common: float = setting(0.0, "share of the rows' mean that calibrator=paired takes from a query", least=0, most=1e6)
    dropout: float = setting(0.5, "in the calibrator", origin="the paper's", least=0, most=1)

    @property
    def calibrators(self) -> list[str]:
        return list(dict.fromkeys(name.strip() for name in self.calibrator.split(",")))

    def calibrator_options(self, name: str, d: int) -> dict[str, Any]:
        if name == "cosine":
            return {"scale": self.scale}
        if name == "paired":
            return {"scale": self.scale, "trust": self.trust, "common": self.common}
        # layer normalisation leaves rows and queries of length sqrt(d), so their inner product is d * cosine
        scale = {
            "inner": self.inner_scale or self.scale / d,
            "cosine": self.scale,
            "unit-rows": self.inner_scale or self.scale / d**0.5,
        }[self.logits]
        options = {"dropout": self.dropout, "cosine": self.logits != "inner", "scale": scale}
        return {**options, "query_length": True} if self.logits == "unit-rows" else options


class Limit(MetaTrained):
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
            calibrators.build(name, 4, **settings.calibrator_options(name, 4))
        if len(settings.calibrators) > 1 and not settings.check:
            raise UserError(f"calibrator={settings.calibrator} names several; set check=true, or name one")
        self.refuse_other_transformers()
        if settings.check or settings.calibrators[0] in UNTRAINED:
            return  # the check leaves out what cannot be trained
        if settings.tasks in ("fake", "pseudo"):
            check_sampled(settings, session)
        else:
            check_batches(settings, session)
        self.check_rates()

    def refuse_other_transformers(self) -> None:
        """What the released code adds exists for one calibrator only."""
        settings = self.settings
        if settings.placeholders and settings.calibrators != ["transformer"]:
            raise UserError("placeholders take part in attention; set calibrator=transformer, or placeholders=false")
        if settings.recursion > 1 and (settings.calibrators != ["transformer"] or settings.dropout > 0):
            raise UserError("recursion needs calibrator=transformer and dropout=0; set them, or recursion=1")
        if settings.recursion > 1 and settings.tasks in ("fake", "pseudo"):
            raise UserError("recursion is for base batches; set tasks=replaced or tasks=plain, or recursion=1")

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
        slots = {"slots": len(trained) + sum(len(each.classes) for each in self.later)} if settings.placeholders else {}
        model.set_calibrator(name, **settings.calibrator_options(name, model.encoder.dim), **slots)
        if model.calibrator.two_inputs:
            model.rows.data = torch.cat([model.rows.data, trained], 1)
        if name in UNTRAINED:
            return
        kinds = {"fake": sampled_tasks, "pseudo": sampled_tasks, "replaced": replaced_tasks, "plain": plain_tasks}
        self.meta_train(session, kinds[settings.tasks](self, session))
