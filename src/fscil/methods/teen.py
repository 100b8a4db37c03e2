"""TEEN: training-free calibration of prototypes (Wang et al., "Few-Shot Class-Incremental Learning via Training-Free
Prototype Calibration", NeurIPS 2023).

A prototype of five images is noisy, but it is near the base classes that it resembles, whose means are well known. So
it is moved towards them. Nothing is trained beyond the pre-training that all methods share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from fscil.methods.decoupled_cosine import DecoupledCosine, DecoupledCosineSettings
from fscil.settings import setting


@dataclass(frozen=True)
class TeenSettings(DecoupledCosineSettings):
    alpha: float = setting(
        0.5, "share of a new class's own prototype; 1 leaves it as it is", origin="the authors' code", least=0, most=1
    )
    tau: float = setting(
        16.0, "the higher, the more the nearest base class counts", origin="the authors' code", least=0, most=1e6
    )
    unit_pull: bool = setting(
        True,
        "the mean of base classes is as long as a prototype before it pulls; in the paper's formula it is shorter",
        origin="the authors' code",
    )


class Teen(DecoupledCosine):
    """Moves new prototypes towards similar base classes."""

    Settings: ClassVar[type] = TeenSettings
    settings: TeenSettings

    def prototypes(self, means: Tensor) -> Tensor:
        """The rows of new classes, from their means [n, d]."""
        settings = self.settings
        return calibrated(means, self.model.rows[self.model.base], settings.alpha, settings.tau, settings.unit_pull)


def calibrated(new: Tensor, base: Tensor, alpha: float, tau: float, unit_pull: bool) -> Tensor:
    """alpha p_n + (1 - alpha) sum_b w_b p_b with w = softmax_b(tau cos(p_n, p_b)), all p of length 1.

    With unit_pull the sum is brought to length 1, too.

    Args:
        new: prototypes of new classes [n, d]
        base: those of base classes [B, d]
    """
    new, base = F.normalize(new, dim=1), F.normalize(base, dim=1)
    w = (tau * new @ base.T).softmax(1)
    pull = F.normalize(w @ base, dim=1) if unit_pull else w @ base
    return alpha * new + (1 - alpha) * pull
