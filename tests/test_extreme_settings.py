"""Settings of any value: refused at once and in one short line, or a configuration that can be kept and run."""

from __future__ import annotations

import shlex
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from damage import refused
from fscil import datasets, methods
from fscil.config import LAST_SEED, read_config, resolve, to_toml
from fscil.config_layers import known_settings
from fscil.errors import UserError
from fscil.naming import LONGEST, quotable

PAIRS = [("limit", "folder"), ("finetune", "glyphs"), ("decoupled-cosine", "digits")]
EXTREMES = [
    "1e308", "-1e308", "1e999", "-1e999", "inf", "nan", "9" * 5000, "-" + "9" * 5000, "0." + "1" * 5000, "1e-320",
    "-0.0", "-1", "0", "1e18", "", " ", "\ud800", "caf\udce9", "\0", "x" * 100_000, "a\nb", "ß", "²", "٣", "1_0", "[1]",
    "5,3,2", "true",
]  # fmt: skip


def check(method: str, dataset: str, overrides: list[str], folder: Path, seed: int = 1) -> None:
    """Settings are refused in a line, or give a configuration that survives being written, read and typed again."""
    if refused(lambda: resolve(method, dataset, overrides, seed)):
        return
    config = resolve(method, dataset, overrides, seed)
    (folder / "config.toml").write_bytes(to_toml(config).encode())
    again = read_config(folder / "config.toml")
    assert (again, again.hash) == (config, config.hash)
    _, _, *words, _, seed_typed = shlex.split(config.command)
    typed = resolve(words[0], words[1], words[2:], int(seed_typed))
    assert (typed, typed.hash) == (config, config.hash)


@pytest.mark.parametrize("value", EXTREMES, ids=lambda value: ascii(value[:9]))
def test_every_setting_takes_or_refuses_every_extreme(value: str, tmp_path: Path) -> None:
    met: set[str] = set()
    for method, dataset in PAIRS:  # between them, they have every setting
        for key in known_settings(method, dataset).keys() - met:
            check(method, dataset, [f"{key}={value}"], tmp_path)
            met.add(key)


@pytest.mark.parametrize(("method", "dataset"), list(product(methods.names(), datasets.names())))
def test_every_number_has_bounds(method: str, dataset: str) -> None:
    """Without them a value could exhaust the memory, or fail only after hours of pre-training."""
    for key, (field, kind) in known_settings(method, dataset).items():
        if kind in (int, float):
            assert field.metadata["least"] <= field.default <= field.metadata["most"], key


ANYTHING = st.one_of(
    st.text(max_size=20),
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(EXTREMES),
    st.sampled_from(["limit", "resnet18", "paired,transformer", "quick", "none", "all", "5,5", "imagenet"]),
)


@given(data=st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_settings_together(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    method, dataset = data.draw(st.sampled_from(PAIRS))
    keys = sorted(known_settings(method, dataset))
    typed = data.draw(st.dictionaries(st.sampled_from(keys), ANYTHING, max_size=3))
    folder = tmp_path_factory.getbasetemp()
    check(
        method, dataset, [f"{key}={value}" for key, value in typed.items()], folder, data.draw(st.integers(-1, 2**70))
    )


@given(st.lists(st.text(max_size=30), max_size=3))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_any_words_in_place_of_settings(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    check("limit", "folder", words, tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("seed", [-1, LAST_SEED + 1, pytest.param(10**5000, id="long"), True, 1.0, "1", None])
def test_a_seed_that_cannot_be_one_is_refused(seed: Any) -> None:
    with pytest.raises(UserError, match=r"seed=.* is not a whole number from 0") as caught:
        resolve("limit", "digits", [], seed)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 100, "x" * LONGEST + "…"),
        ("a\nb", "a\\nb"),
        ("\ud800", "\\ud800"),
        pytest.param(10**5000, "a number of thousands of digits", id="long"),
    ],
)
def test_messages_quote_values_on_one_short_line(value: Any, shown: str) -> None:
    assert quotable(value) == shown


def test_a_training_of_years_is_refused_before_it_begins(start: Any) -> None:
    with pytest.raises(UserError, match="steps, but may take 10,000,000; lower epochs"):
        start("decoupled-cosine", "epochs=1e7", "batch=1")
