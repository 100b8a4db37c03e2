from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fscil import config as config_module
from fscil import datasets
from fscil.config import Config, check_overrides, overrides_of, presets, read_config, resolve, to_toml
from fscil.errors import UserError

Preset = Callable[..., None]


@pytest.fixture
def preset(monkeypatch: pytest.MonkeyPatch) -> Preset:
    """preset(...): a preset named "mine" with that content."""

    def install(**content: Any) -> None:
        real = config_module.read_preset
        monkeypatch.setattr(config_module, "read_preset", lambda name: content if name == "mine" else real(name))
        monkeypatch.setattr(config_module, "presets", lambda: [*presets(), "mine"])

    return install


def test_each_layer_wins_over_the_ones_before(preset: Preset, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {"lr": 2.0, "momentum": 0.2, "scale": 2.0, "epochs": 2}
    monkeypatch.setitem(datasets.BUILT_IN, "digits", replace(datasets.get("digits"), defaults=defaults))
    preset(
        method="limit",
        settings={"momentum": 0.3, "scale": 3.0, "epochs": 3},
        on={"digits": {"scale": 4.0, "epochs": 4, "trial": 4}},
    )
    found = resolve("mine", "digits", ["epochs=5"])
    assert found.settings["batch"] == 128  # the method's default
    assert found.settings["lr"] == 2.0  # < the benchmark's
    assert found.settings["momentum"] == 0.3  # < the preset's
    assert found.settings["scale"] == 4.0  # < the preset's on this benchmark
    assert found.settings["epochs"] == 5  # < what was typed
    assert found.options["trial"] == 4
    assert resolve("mine", "digits", ["trial=6"]).options["trial"] == 6
    assert resolve("mine", "glyphs").settings["scale"] == 3.0  # [on.digits] is for digits alone


def test_presets_name_their_method_and_carry_a_note(preset: Preset) -> None:
    preset(method="limit", note="simplified", notes={"glyphs": "simplified for glyphs"})
    found = resolve("mine", "digits", seed=7)
    assert (found.preset, found.method, found.benchmark, found.seed) == ("mine", "limit", "digits", 7)
    assert found.note == "simplified"
    assert resolve("mine", "glyphs").note == "simplified for glyphs"


def test_benchmark_defaults_that_a_method_does_not_know_are_left_out(tiny_dataset: str) -> None:
    assert "meta_steps" in datasets.get(tiny_dataset).defaults
    assert "meta_steps" not in resolve("finetune", tiny_dataset).settings


def test_every_method_and_preset_has_a_whole_configuration_on_every_benchmark() -> None:
    for name in presets():
        for benchmark in datasets.names():
            found = resolve(name, benchmark)
            assert found.method_settings() is not None
            assert found.dataset_options() is not None
            assert found.run_settings() is not None


def test_limit_paper_is_the_paper() -> None:
    found = resolve("limit-paper", "cifar100")
    assert found.method == "limit"
    expected = {
        "epochs": 300, "lr": 0.1, "momentum": 0.9, "batch": 128, "fake_phases": 2, "fake_way": 5, "fake_shot": 5,
        "fake_classes": "base", "tasks": "fake", "rows": "trained", "logits": "inner", "dropout": 0.5,
        "encoder_lr": 2e-4, "rows_lr": 2e-4, "calibrator_lr": 2e-4, "halve_every": 1000, "base_margin": 0.0,
        "power": 1.0, "mirror": False, "augmentation": "autoaug", "encoder": "resnet20",
    }  # fmt: skip
    assert {key: found.settings[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("limmit", "digits", []), "unknown method 'limmit': did you mean 'limit'"),
        (("limit", "digit", []), "'digit': did you mean 'digits'"),
        (("limit", "digits", ["epoch=3"]), "unknown setting 'epoch': did you mean 'epochs'"),
        (("finetune", "digits", ["meta_steps=3"]), "unknown setting 'meta_steps'"),
        (("limit", "digits", ["images_per_class=3"]), "unknown setting 'images_per_class'"),
        (("limit", "digits", ["epochs"]), "write key=value"),
        (("limit", "digits", ["=3"]), "write key=value"),
        (("limit", "digits", ["epochs=x"]), "epochs=x is not an int"),
        (("limit", "digits", ["bn=on"]), "unknown value for bn 'on'"),
        (("limit", "digits", ["validation=yes"]), "unknown value for validation"),
        (("limit", "digits", ["trial=x"]), "trial=x is not an int"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, str, list[str]], message: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(*arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_dashes_and_spaces_in_overrides_are_forgiven() -> None:
    assert resolve("limit", "digits", ["meta-steps = 7"]).settings["meta_steps"] == 7


@pytest.mark.parametrize("benchmark", datasets.names())
@pytest.mark.parametrize("name", presets())
def test_config_toml_comes_back_whole(tmp_path: Path, name: str, benchmark: str) -> None:
    config = resolve(name, benchmark, ["flip=false", "lr=1e-7", "trials=2"], seed=3)
    (tmp_path / "config.toml").write_text(to_toml(config))
    found = read_config(tmp_path / "config.toml")
    assert found == config
    assert found.hash == config.hash


@given(path=st.text(st.characters(blacklist_categories=["Cs"]), max_size=20))
def test_any_text_survives_config_toml(path: str) -> None:
    config = Config("limit", "limit", "folder", 1, {}, {"path": path}, {}, note=path)
    found = tomllib.loads(to_toml(config))
    assert found["options"]["path"] == found["note"] == path


def test_explained_settings_are_valid_toml_with_the_same_values() -> None:
    config = resolve("limit", "glyphs")
    text = to_toml(config, explain=True)
    assert "# C, the paper's" in text
    assert tomllib.loads(text) == tomllib.loads(to_toml(config))


def test_a_reason_is_that_of_the_default_which_is_named_where_another_value_stands() -> None:
    text = to_toml(resolve("limit", "cifar100"), explain=True)
    assert "\nlr = 0.2  # in place of 0.1: the paper's\n" in text
    assert "\nmomentum = 0.9  # the paper's\n" in text


def test_limit_paper_is_the_papers_on_every_benchmark() -> None:
    """Whatever benchmarks set for speed's sake, the letter stays."""
    stated = {"batch": 128, "lr": 0.1, "epochs": 300, "dropout": 0.5, "encoder_lr": 2e-4, "calibrator_lr": 2e-4}
    ours = {"power": 1.0, "mirror": False, "whiten": 0.0, "base_margin": 0.0}
    for benchmark in datasets.names():
        settings = resolve("limit-paper", benchmark).settings
        assert {key: settings[key] for key in {**stated, **ours}} == {**stated, **ours}


def test_hash_tells_configurations_apart_and_seeds_together() -> None:
    first, again = resolve("limit", "digits"), resolve("limit", "digits", ["epochs=300"])
    assert first.hash == again.hash
    other_seed, other_epochs = resolve("limit", "digits", seed=2), resolve("limit", "digits", ["epochs=3"])
    assert len({first.hash, other_seed.hash, other_epochs.hash}) == 3
    group = [config.hash.partition("-")[0] for config in (first, other_seed, other_epochs)]
    assert group[0] == group[1] != group[2]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[settings]", "[settings", "is not valid TOML"),
        ('method = "limit"\n', "", "lacks method"),
        ("epochs = 300", 'epochs = "many"', "epochs=many is not an int"),
        ("epochs = 300", "epoch = 300", "unknown setting 'epoch'"),
        ("trial = 1", "tryal = 1", "unknown setting 'tryal'"),
        ("trials = 0", "trials = -1", "trials=-1 is too small"),
        ('preset = "limit"', 'preset = "limbo"', "unknown method 'limbo'"),
        ("seed = 1", 'seed = "one"', "start the run again"),
    ],
)
def test_an_edited_config_toml_is_checked(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = to_toml(resolve("limit", "digits"))
    assert text.count(old) == 1
    (tmp_path / "config.toml").write_text(text.replace(old, new))
    with pytest.raises(UserError) as caught:
        read_config(tmp_path / "config.toml")
    assert message in str(caught.value)


def test_sections_must_be_sections(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        'preset="limit"\nmethod="limit"\nbenchmark="digits"\nseed=1\nnote=""\nsettings=3\noptions={}\nrun={}\n'
    )
    with pytest.raises(UserError, match="not a run's configuration"):
        read_config(tmp_path / "config.toml")


def test_a_folder_without_a_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name a run folder"):
        read_config(tmp_path / "config.toml")


def test_overrides_go_to_the_methods_that_know_them() -> None:
    given = ["meta-steps=3", "epochs=2", "trial=4", "trials=1"]
    assert overrides_of("limit-paper", "digits", given) == given
    assert overrides_of("finetune", "digits", given) == given[1:]
    check_overrides(["finetune", "limit"], "digits", given)
    with pytest.raises(UserError, match="unknown setting 'meta_stepz': did you mean 'meta_steps'"):
        check_overrides(["limit", "finetune"], "digits", ["meta_stepz=3"])
    with pytest.raises(UserError, match="write key=value"):
        check_overrides(["limit"], "digits", ["epochs"])
