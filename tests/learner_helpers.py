"""What the learner's tests share."""

from __future__ import annotations

from pathlib import Path

import torch

from fscil import Learner

Digits = dict[str, list[Path]]  # files by class


def rows_of(learner: Learner) -> dict[str, torch.Tensor]:
    """Every taught class's row."""
    rows = learner._knowledge.rows
    return dict(zip(rows.names, learner._knowledge.model.rows[rows.base :], strict=True))
