from __future__ import annotations

import dataclasses
import shlex
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil import calibrators, datasets, encoders, recipes
from fscil.config import Config, presets, read_config, resolve, to_toml
from fscil.config_layers import known_settings

COMBINATIONS = list(product(presets(), datasets.names()))


def values_of(key: str, field: Any, hint: Any) -> st.SearchStrategy[str]:
    """Any value that the setting takes, as it might be typed."""
    least, most = field.metadata.get("least"), field.metadata.get("most")
    by_name = {"recipe": recipes.names, "encoder": encoders.names, "calibrator": calibrators.names}
    if choices := field.metadata.get("choices"):
        return st.sampled_from(choices)
    if key in by_name:
        return st.sampled_from(by_name[key]())
    if hint is bool:
        return st.sampled_from(["true", "off", "1"])
    if hint is int:
        return st.integers(int(least or 0), int(most or 10**6)).map(str)
    if hint is float:
        return st.floats(least or 0, most or 1e9).map(str)
    return st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)


@st.composite
def configurations(draw: st.DrawFn) -> Config:
    name, benchmark = draw(st.sampled_from(COMBINATIONS))
    known = known_settings(resolve(name, benchmark).method, benchmark)
    keys = draw(st.lists(st.sampled_from([*known, "recipe", "epochs", "steps"]), unique=True, max_size=8))
    if "epochs" in keys and "steps" in keys:
        keys.remove(draw(st.sampled_from(["epochs", "steps"])))
    typed = [f"{key}={draw(values_of(key, *known[key]))}" for key in keys]
    typed = [each for each in typed if each not in ("epochs=0", "steps=0")]
    return resolve(name, benchmark, typed, draw(st.integers(0, 99)))


@given(config=configurations())
@settings(max_examples=60, deadline=None)
def test_what_was_changed_gives_the_configuration_back(config: Config) -> None:
    assert resolve(config.preset, config.benchmark, config.changed, config.seed) == config
    words = shlex.split(config.command)
    assert words[:2] == ["fscil", "run"]
    assert words[-2:] == ["--seed", str(config.seed)]
    assert resolve(words[2], words[3], words[4:-2], int(words[-1])) == config


@given(config=configurations())
@settings(max_examples=20, deadline=None)
def test_nothing_of_what_was_changed_can_be_left_out(config: Config) -> None:
    changed = config.changed
    for i in range(len(changed)):
        assert resolve(config.preset, config.benchmark, changed[:i] + changed[i + 1 :], config.seed) != config


def test_what_was_typed_in_vain_is_not_a_change() -> None:
    assert resolve("limit", "glyphs", ["epochs=4", "recipe=quick", "flip=no"]).changed == []
    assert resolve("limit", "glyphs", ["steps=70", "flip=yes"]).changed == ["flip=true", "steps=70"]
    assert resolve("limit", "folder", ["size=32", "encoder=resnet20"]).changed == ["size=32"]
    assert resolve("limit", "glyphs", ["recipe=paper", "batch=128", "lr=1e-3"]).changed == ["recipe=paper", "lr=0.001"]


def test_the_command_can_be_typed_into_a_shell() -> None:
    config = resolve("limit", "folder", ["path=my photos/it's", "trials=2"], seed=4)
    assert config.command == """fscil run limit folder 'path=my photos/it'"'"'s' trials=2 --seed 4"""


def test_a_run_folder_remembers_what_was_changed(tmp_path: Path) -> None:
    config = resolve("limit", "folder", ["size=32", "recipe=paper", "epochs=5"], seed=3)
    (tmp_path / "config.toml").write_text(to_toml(config))
    found = read_config(tmp_path / "config.toml")
    assert found.command == config.command == "fscil run limit folder size=32 recipe=paper epochs=5 --seed 3"
    assert found.sources == config.sources
    assert to_toml(found, explain=True) == to_toml(config, explain=True)


@pytest.mark.parametrize(
    ("typed", "note"),
    [([], "for speed, LIMIT on digits meta-trains for 300 steps"), (["meta_steps=5000"], "")],
)
def test_a_run_folder_keeps_its_note(tmp_path: Path, typed: list[str], note: str) -> None:
    config = resolve("limit", "digits", typed)
    assert config.note == note
    # and one of an earlier version, which noted it whatever was typed, keeps that and its hash
    for written in (config, dataclasses.replace(config, note="for speed, LIMIT on digits meta-trains for 300 steps")):
        (tmp_path / "config.toml").write_text(to_toml(written))
        found = read_config(tmp_path / "config.toml")
        assert (found.note, found.hash) == (written.note, written.hash)


def test_where_values_are_from_is_no_part_of_a_configuration() -> None:
    config, typed = resolve("limit", "glyphs"), resolve("limit", "glyphs", ["epochs=4"])
    assert config.sources != typed.sources
    assert (config, config.hash, to_toml(config)) == (typed, typed.hash, to_toml(typed))
    assert "sources" not in config.as_dict()


def test_a_run_folder_from_before_recipes_is_still_read(tmp_path: Path) -> None:
    config = resolve("decoupled-cosine", "digits", ["epochs=60", "batch=128", "lr=0.1", "warmup=0"])
    lines = to_toml(config).splitlines()
    older = [line for line in lines if not line.startswith(("recipe", "steps", "weights", "input_size"))]
    (tmp_path / "config.toml").write_text("\n".join(older))
    found = read_config(tmp_path / "config.toml")
    assert "recipe" not in found.settings  # so that the hash stays that of the run
    assert found.method_settings().epochs == 60
    assert found.changed == ["epochs=60", "batch=128", "lr=0.1", "warmup=0"]
