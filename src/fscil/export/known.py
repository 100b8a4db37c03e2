"""What a learner knows at the moment of an export."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fscil import __version__
from fscil.learner import Learner
from fscil.learner.unknown import RIVALS
from fscil.model import Model

FORMAT = 2  # of what the file says about itself; increase it with any change that readers must know of


@dataclass(frozen=True)
class Known:
    model: Model  # a copy on the CPU
    rows: NDArray[np.float32]  # [C, d]
    margins: NDArray[np.float32]  # [C], subtracted from logits; infinite for a class that is not to be answered
    facts: dict[str, Any]  # JSON values


def what_is_known(source: Learner | str | PathLike[str]) -> Known:
    """source: a learner, or the path of a model folder or of the run folder around it."""
    learner = source if isinstance(source, Learner) else Learner.load(source)
    knowledge = learner._knowledge
    with knowledge.lock:
        confidence, unknown = knowledge.measured()
        columns, model = knowledge.columns(), knowledge.model.frozen_copy().cpu()
    base = model.base.numpy()
    names = [name if visible else None for name, visible in zip(columns.names, columns.visible.tolist(), strict=True)]
    facts = {
        "format": FORMAT,
        "fscil": __version__,
        "classes": names,  # by row; null for one that is not to be answered
        "base": base.tolist(),
        "margin": model.base_margin,
        "temperature": confidence.temperature,
        "threshold": unknown.threshold,  # a photo whose score is lower is unknown
        "score": "best logit - share * mean of the next logits, as many as rivals says",
        "share": unknown.share,
        "rivals": RIVALS,
        "encoder": model.spec.encoder,
        "weights": model.spec.weights,
        "calibrator": model.spec.calibrator,
        "stored_size": model.spec.stored_size,
        "input_size": model.spec.input_size,
        "row_size": model.row_size,
    }
    margins = np.where(columns.visible, model.base_margin * base, np.inf).astype(np.float32)
    return Known(model, model.rows.detach().numpy().copy(), margins, facts)
