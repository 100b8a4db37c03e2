"""Calibrators: set-to-set functions over classifier rows and a query (the paper's T)."""

from __future__ import annotations

from fscil.calibrators.transformer import Transformer

__all__ = ["Transformer"]
