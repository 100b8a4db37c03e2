"""CEC: classifiers that attend to each other, trained on pseudo-incremental tasks of rotated base classes.

Zhang et al., "Few-Shot Incremental Learning with Continually Evolved Classifiers", CVPR 2021. The tasks and their loss
are in episodes/pseudo_tasks.py and fake_tasks.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fscil.benchmark import Session
from fscil.engine import seed_for
from fscil.methods.fake_tasks import check_sampled, sampled_tasks
from fscil.methods.meta_training import MetaSettings, MetaTrained
from fscil.methods.pretrain import HIGHEST_RATE, pretrain
from fscil.methods.training import MOST_STEPS
from fscil.settings import setting

CODES = "CEC's code"


@dataclass(frozen=True)
class CecSettings(MetaSettings):
    """The defaults are those of CEC's code on CIFAR100.

    With one exception: there, images are augmented in the first 50 iterations only (augmented_steps=50), by mistake.
    """

    calibrator: str = setting(
        "transformer",
        "how classifiers attend to each other: transformer (CEC's code: the query is one of the tokens, as in LIMIT) "
        "or graph (CEC's paper: rows attend to rows alone, whatever the image)",
        origin=CODES,
        choices=("transformer", "graph"),
    )
    tasks: str = setting(
        "pseudo",
        "what is learned from after pre-training: pseudo-incremental tasks (PIL, CEC's), whose rows are all "
        "prototypes, half of them of rotated images; or fake tasks (FIT, LIMIT's Algorithm 1)",
        origin="CEC's",
        choices=("fake", "pseudo"),
    )
    fake_way: int = setting(
        15, "base classes of a pseudo-incremental task, beside as many rotated ones", origin=CODES, least=1, most=10_000
    )
    fake_shot: int = setting(1, "supports of each class", origin=CODES, least=1, most=10_000)
    fake_queries: int = setting(15, "queries of each class", origin=CODES, least=1, most=10_000)
    rows: str = setting("means", "of base classes: class means", origin=CODES, choices=("means",))
    dropout: float = setting(0.0, "in the calibrator; CEC's code has it, but never in effect", least=0, most=1)
    meta_steps: int = setting(5000, "tasks of meta-training: 100 epochs of 50", origin=CODES, least=1, most=MOST_STEPS)
    encoder_lr: float = setting(
        2e-3, "learning rate of the encoder; 0 fixes it", origin=CODES, least=0, most=HIGHEST_RATE
    )
    rows_lr: float = setting(
        0.0, "learning rate of the rows, which only fake tasks use", origin=CODES, least=0, most=HIGHEST_RATE
    )
    calibrator_lr: float = setting(2e-4, "learning rate of the calibrator", origin=CODES, least=0, most=HIGHEST_RATE)
    halve_every: int = setting(
        1000,
        "iterations after which all learning rates are halved; 0: never",
        origin="CEC's code, every 20 epochs",
        least=0,
        most=MOST_STEPS,
    )
    refresh_every: int = setting(
        50,
        "iterations after which base rows become class means again, for fake tasks to use; always done at the end",
        origin=CODES,
        least=0,
        most=MOST_STEPS,
    )

    def calibrator_options(self) -> dict[str, Any]:
        return {"dropout": self.dropout, "cosine": True, "scale": self.scale}


class Cec(MetaTrained):
    """Classifiers attend to each other; trained on rotated ones."""

    Settings: ClassVar[type] = CecSettings
    settings: CecSettings

    def learn_base(self, session: Session) -> None:
        """Pre-train, train the attention on tasks, and take class means as the base classes' classifiers.

        A later class's classifier is its prototype; nothing else is learned (learn_session).
        """
        settings = self.settings
        check_sampled(settings, session)
        self.check_rates()
        self.model = pretrain(session, settings, self.context)
        self.model.rows.data = self.base_rows(self.model, session, "means")
        torch.manual_seed(seed_for(self.engine.seed, "calibrator"))
        self.model.set_calibrator(settings.calibrator, **settings.calibrator_options())
        self.meta_train(session, sampled_tasks(self, session))
        self.refresh(session)
