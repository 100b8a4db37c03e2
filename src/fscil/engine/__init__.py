"""The one training loop that serves all methods."""

from __future__ import annotations

from fscil.engine.engine import Engine
from fscil.engine.seeds import seed_for
from fscil.engine.stage import Stage

__all__ = ["Engine", "Stage", "seed_for"]
