"""Fixtures that several rooms share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fscil import metrics
from fscil.results import Result, config_hash


@pytest.fixture
def make_result() -> Callable[..., Result]:
    """Builds a Result with sound, self-consistent numbers; fields can be overridden by name.

    `classes_per_session` decides the stream; images per class and the share of right answers are small and fixed.
    """

    def build(classes_per_session: tuple[int, ...] = (6, 2, 2), seed: int = 1, **fields: Any) -> Result:
        classes, seen = sum(classes_per_session), np.cumsum(classes_per_session)
        rng = np.random.default_rng(seed)
        labels = np.repeat(np.arange(classes), 10)
        predictions = np.full((len(seen), len(labels)), -1)
        for i, count in enumerate(seen):
            here = labels < count
            guesses = rng.integers(0, count, here.sum())
            predictions[i, here] = np.where(rng.random(here.sum()) < 0.7, labels[here], guesses)
        config = {"method": fields.get("method", "limit"), "preset": fields.get("preset", "limit"), "seed": seed}
        result = Result(
            **metrics.summarise(labels, predictions, classes_per_session),
            method="limit",
            preset="limit",
            benchmark="glyphs",
            augmentation="autoaug",
            seed=seed,
            trial=1,
            seconds={"pretrain": {"seconds": 61.5, "cached": True}, "meta": {"seconds": 12.25, "cached": False}},
            captured=False,
            parameters={"inference": 270_000, "training_only": 12_000},
            exemplars=0,
            weights="none",
            warnings=[],
            note="",
            config_hash=config_hash(config),
            command=f"fscil run limit glyphs --seed {seed}",
            versions={"fscil": "0.1.0", "torch": "2.11.0"},
            device="cpu",
            split_checksum="0123456789abcdef",
            class_names=[f"class {i}" for i in range(classes)],
            classes_per_session=list(classes_per_session),
            trials=[],
        )
        return replace(result, **fields)

    return build
