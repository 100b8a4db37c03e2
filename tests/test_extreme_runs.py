"""Runs with every number at its smallest and largest allowed value: a result, or one line."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from damage import refused
from fscil import methods, runs
from fscil.config import resolve
from fscil.config_layers import known_settings
from fscil.errors import UserError
from fscil.results import read_result
from run_helpers import QUIET, PowerCut, PowerCutError, Start, where

# their largest values take years
LONG = (
    "epochs", "steps", "warmup", "meta_steps", "session_epochs", "trials", "gas_steps", "balanced_epochs",
)  # fmt: skip
WHOLE = ("limit", "decoupled-cosine", "finetune")  # others are run with what these do not have


def numbers(method: str) -> list[tuple[str, str, float]]:
    known = known_settings(method, "digits")
    if method not in WHOLE:
        shared = known_settings("finetune", "digits")
        known = {key: each for key, each in known.items() if key not in shared}
    bounds = [
        (method, key, field.metadata[end])
        for key, (field, kind) in known.items()
        for end in ("least", "most")
        if kind in (int, float) and not (key in LONG and end == "most")
    ]
    return [each for each in bounds if each[1] != "trial"]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "key", "value"), [each for method in methods.names() for each in numbers(method)])
def test_a_run_at_a_bound_ends_in_a_result_or_in_one_line(
    start: Start, tmp_path: Path, method: str, key: str, value: float
) -> None:
    more = {"cutout": ["augmentation=autoaug"], "whiten": ["rows=trained"], "trust": ["calibrator=paired"]}
    drawn = method == "decoupled-cosine"  # pictures are drawn from the result alone, so once is enough

    def run() -> None:
        start(method, f"{key}={value:g}", *more.get(key, []), drawn=drawn, checkpoint_seconds=math.inf)

    if not refused(run):
        assert read_result(tmp_path / "run").method == method


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["weight_decay=1000"], "embeddings of base images are not finite numbers; lower lr, weight_decay or power"),
        (["power=10", "scale=1e6", "lr=1000"], "not finite|diverged"),
        (["whiten=1e-300"], r"whiten=1e-300 would divide by a variance of about 0"),
    ],
)
def test_what_cannot_be_learned_says_which_setting_to_change(start: Start, settings: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        start("decoupled-cosine", *settings)


def test_a_run_folder_may_have_a_name_that_is_not_utf_8(tiny_dataset: str, tmp_path: Path, power_cut: PowerCut) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    with power_cut(lines=3), pytest.raises(PowerCutError):
        runs.start(resolve("limit", tiny_dataset), where(folder), QUIET)
    result = runs.resume(where(folder), QUIET)
    assert read_result(folder) == result
