from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fscil import datasets, recipes
from fscil.config import Config, check_overrides, overrides_of, presets, read_config, resolve, to_toml
from fscil.config_layers import known_settings
from fscil.errors import UserError
from fscil.pairing import different_embedding

COMBINATIONS = list(product(presets(), datasets.names()))


def refusal(*arguments: Any) -> str:
    with pytest.raises(UserError) as caught:
        resolve(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_benchmark_defaults_that_a_method_does_not_know_are_left_out(tiny_dataset: str) -> None:
    assert "meta_steps" in datasets.get(tiny_dataset).defaults
    assert "meta_steps" not in resolve("finetune", tiny_dataset).settings


@pytest.mark.parametrize(("name", "benchmark"), COMBINATIONS)
def test_every_method_and_preset_has_a_whole_configuration_on_every_benchmark(name: str, benchmark: str) -> None:
    """This also checks that no shipped preset, recipe or dataset has an unknown name."""
    for recipe in recipes.names():
        found = resolve(name, benchmark, [f"recipe={recipe}"])
        assert found.method_settings() is not None
        assert found.dataset_options() is not None
        assert found.run_settings() is not None


def test_limit_paper_is_the_paper() -> None:
    found = resolve("limit-paper", "cifar100")
    assert found.method == "limit"
    expected = {
        "recipe": "paper", "epochs": 300, "warmup": 0,
        "lr": 0.1, "momentum": 0.9, "batch": 128, "fake_phases": 2, "fake_way": 20, "fake_shot": 20,
        "fake_classes": "base", "tasks": "fake", "rows": "trained", "logits": "inner", "dropout": 0.5,
        "encoder_lr": 2e-4, "rows_lr": 2e-4, "calibrator_lr": 2e-4, "halve_every": 1000, "meta_steps": 5000,
        "power": 1.0, "mirror": False, "shift": 0, "whiten": 0.0, "augmentation": "autoaug", "encoder": "resnet20",
        "calibrator": "transformer", "check": False, "inner_scale": 0.0,
    }  # fmt: skip
    assert {key: found.settings[key] for key in expected} == expected
    assert found.run["base_margin"] == 0


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
        (("limit", "digits", ["rows=on"]), "unknown value for rows 'on'"),
        (("limit", "digits", ["validation=yes"]), "unknown value for validation"),
        (("limit", "digits", ["trial=x"]), "trial=x is not an int"),
        (("limit", "digits", ["encoder=resnet19"]), "unknown encoder 'resnet19': did you mean 'resnet18'"),
        (("limit", "digits", ["calibrator=transfomer"]), "unknown calibrator 'transfomer': did you mean 'transformer'"),
        (("limit", "digits", ["calibrator=paired, pared"]), "unknown calibrator 'pared': did you mean 'paired'"),
        (("limit", "digits", ["calibrator=paired,"]), "unknown calibrator ''"),
        (("limit", "digits", ["encoder=resnet20,resnet18"]), "unknown encoder 'resnet20,resnet18'"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, str, list[str]], message: str) -> None:
    assert message in refusal(*arguments)


def test_a_typo_is_answered_in_one_short_line() -> None:
    assert refusal("limit", "digits", ["wram_up=3"]) == "unknown setting 'wram_up': did you mean 'warmup'?"
    assert refusal("limit", "digits", ["xyz=3"]).endswith("`fscil run limit digits --show-config` shows all")


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


# -- --show-config -----------------------------------------------------------------------------------------------------
def test_explained_settings_are_valid_toml_with_the_same_values() -> None:
    config = resolve("limit", "glyphs")
    assert tomllib.loads(to_toml(config, explain=True)) == tomllib.loads(to_toml(config))


def test_every_value_says_where_it_is_from() -> None:
    lines = to_toml(resolve("limit-plus", "cifar100", ["epochs=7", "momentum=0.9"]), explain=True).splitlines()
    shown = {line.partition(" ")[0]: line.partition("  # ")[2] for line in lines}
    assert shown["batch"].startswith("recipe large-batch; default 128, the paper's. images per step")
    assert shown["epochs"].startswith("typed; default 300, the paper's. passes over")
    assert shown["momentum"].startswith("typed. ")  # and happens to be the default
    assert shown["weight_decay"].startswith("default, the released code's")
    assert shown["base_margin"].startswith("preset limit-plus; default 0.0, the paper's. ")
    assert shown["cutout"].startswith("dataset cifar100; default 0. ")
    assert shown["scale"].startswith("default. ")
    assert shown["recipe"].startswith('dataset cifar100; default "none". ')
    assert shown["recipe"].endswith(recipes.why("large-batch"))


def test_what_is_ours_is_not_called_the_papers() -> None:
    """A reason is about the setting, so it must hold for any value; "the paper's" belongs to the default alone."""
    for key in ("epochs", "steps", "batch", "lr", "momentum", "warmup"):
        field, _ = known_settings("decoupled-cosine", "glyphs")[key]
        assert "paper" not in field.metadata["why"]


def test_limit_paper_is_the_papers_on_every_benchmark() -> None:
    """Whatever benchmarks set for speed, limit-paper keeps the paper's values."""
    stated = {"batch": 128, "lr": 0.1, "epochs": 300, "dropout": 0.5, "encoder_lr": 2e-4, "calibrator_lr": 2e-4}
    ours = {"check": False, "calibrator": "transformer", "inner_scale": 0.0}
    for benchmark in datasets.names():
        settings = resolve("limit-paper", benchmark).settings
        assert {key: settings[key] for key in {**stated, **ours}} == {**stated, **ours}


@pytest.mark.parametrize("benchmark", datasets.names())
@pytest.mark.parametrize("name", ["limit", "limit-paper"])
def test_limit_is_the_papers_algorithm_on_every_benchmark(name: str, benchmark: str) -> None:
    """All parts learn from the paper's fake tasks, nothing is done to embeddings, and no class is favoured."""
    found = resolve(name, benchmark)
    settings = {**found.settings, **found.run}
    papers = {
        "tasks": "fake", "fake_classes": "base", "logits": "inner", "calibrator": "transformer", "power": 1.0,
        "mirror": False, "shift": 0, "whiten": 0.0, "base_margin": 0.0,
    }  # fmt: skip
    assert {key: settings[key] for key in papers} == papers
    assert min(settings["rows_lr"], settings["calibrator_lr"]) > 0
    # the only exceptions, and they say so
    fixed = name == "limit" and benchmark in ("glyphs", "omniglot")
    means = fixed or (name == "limit" and benchmark == "cub200")
    assert (settings["encoder_lr"] == 0, settings["rows"] == "means") == (fixed, means)
    assert not fixed or "has a fixed encoder, class means as rows" in found.note
    assert fixed or not means or "rows of base classes start as class means" in found.note


@pytest.mark.parametrize("benchmark", datasets.names())
def test_limit_plus_and_its_class_means_have_one_embedding(benchmark: str) -> None:
    ours, means = resolve("limit-plus", benchmark), resolve("decoupled-cosine-plus", benchmark)
    assert different_embedding(ours, means) == []
    assert different_embedding(ours, resolve("limit", benchmark)) != []
    assert (means.method, means.settings["rows"]) == ("decoupled-cosine", "means")


@pytest.mark.parametrize("preset", ["limit", "limit-plus"])
def test_calibration_is_checked_on_data_that_nobody_tuned_for(preset: str) -> None:
    unchecked = {name for name in datasets.names() if not resolve(preset, name).settings["check"]}
    assert unchecked == {"cifar100", "cub200", "glyphs"}


def test_hash_tells_configurations_apart_and_seeds_together() -> None:
    first, again = resolve("limit", "glyphs"), resolve("limit", "glyphs", ["epochs=4"])
    assert first.hash == again.hash
    other_seed, other_epochs = resolve("limit", "glyphs", seed=2), resolve("limit", "glyphs", ["epochs=3"])
    assert len({first.hash, other_seed.hash, other_epochs.hash}) == 3
    group = [config.hash.partition("-")[0] for config in (first, other_seed, other_epochs)]
    assert group[0] == group[1] != group[2]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[settings]", "[settings", "is not valid TOML"),
        ('method = "limit"\n', "", "lacks method"),
        ('method = "limit"\n', 'method = "finetune"\n', "unknown method 'finetune': known are limit"),
        ('method = "limit"\n', "method = 3\n", "not a run's configuration"),
        ("\nepochs = 4", '\nepochs = "many"', "epochs=many is not an int"),
        ("\nepochs = 4", "\nepochs = 2020-02-02", "epochs = 2020-02-02, which no setting can be"),
        ("\nepochs = 4", "\nepoch = 4", "unknown setting 'epoch'"),
        ("\nepochs = 4", "\ntrials = 4", "[settings]: unknown setting 'trials'"),
        (
            "\nepochs = 4",
            "\nbase_margin = 4",
            "[settings]: unknown setting 'base_margin': another version of fscil had",
        ),
        ("trial = 1", "tryal = 1", "unknown setting 'tryal'"),
        ("trials = 0", "trials = -1", "trials=-1 is too small"),
        ('preset = "limit"', 'preset = "limbo"', "unknown method 'limbo'"),
        ("seed = 1", 'seed = "one"', "start the run again"),
    ],
)
def test_an_edited_config_toml_is_checked(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = to_toml(resolve("limit", "glyphs"))
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


def test_a_configuration_is_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    config = resolve("limit", "folder", ["path=Käfer"])
    (tmp_path / "config.toml").write_bytes(to_toml(config).encode())
    code = "import sys, pathlib, fscil.config as c; print(c.read_config(pathlib.Path(sys.argv[1])).hash)"
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", code, str(tmp_path / "config.toml")]
    found = subprocess.run(command, env={**os.environ, **locale}, capture_output=True, check=True)
    assert found.stdout.decode().strip() == config.hash
