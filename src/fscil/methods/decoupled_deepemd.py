"""Decoupled-DeepEMD: pre-train, fix the encoder, compare maps of features by earth mover's distance.

DeepEMD (Zhang et al., CVPR 2020) without its meta-training, as CEC's tables have it: a class is the mean of its images'
maps. The distance is in calibrators/emd.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fscil.benchmark import Session
from fscil.calibrators import emd
from fscil.images import subset
from fscil.methods.method import Method
from fscil.methods.pretrain import PretrainSettings, new_model, pretrain
from fscil.settings import setting


@dataclass(frozen=True)
class DecoupledDeepEMDSettings(PretrainSettings):
    solver: str = setting(
        "auto",
        "exact (on all CPU cores; needs POT), sinkhorn (within 1 % of it), or auto: exact on CPUs, sinkhorn on GPUs",
        choices=emd.SOLVERS,
    )


class DecoupledDeepEMD(Method):
    """Mean feature maps, compared by earth mover's distance."""

    Settings: ClassVar[type] = DecoupledDeepEMDSettings
    settings: DecoupledDeepEMDSettings

    def check_sessions(self, sessions: Sequence[Session]) -> None:
        if self.settings.solver == "exact" or (self.settings.solver == "auto" and self.engine.device.type == "cpu"):
            emd.exact_solver()  # refuses a missing package

    def learn_base(self, session: Session) -> None:
        settings = self.settings
        cells = self.cells(session)  # refuses encoders without maps, before the long pre-training
        self.model = pretrain(session, settings, self.context)
        self.model.set_calibrator("emd", cells=cells, scale=settings.scale, solver=settings.solver)
        self.model.rows.data = self.mean_maps(session)

    def learn_session(self, session: Session) -> None:
        self.model.add_rows(self.mean_maps(session))

    def mean_maps(self, session: Session) -> Tensor:
        """[classes, cells * d]; class by class, since the maps of all base images may not fit into memory."""
        members = [torch.nonzero(session.labels == label).flatten() for label in session.classes]
        return torch.stack([self.embed(subset(session.images, each)).mean(0) for each in members])

    @torch.no_grad()
    def cells(self, session: Session) -> int:
        """Cells of a map: an untrained encoder shows them."""
        untrained = new_model(session, self.settings, self.context).eval()
        image = session.images[torch.zeros(1, dtype=torch.long)].to(self.engine.device)
        return untrained.encoder.spatial(image).shape[-2:].numel()
