from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fscil import config_layers, datasets, methods, recipes
from fscil.config import overrides_of, presets, resolve
from fscil.errors import UserError
from fscil.methods.finetune import FinetuneSettings
from fscil.settings import setting

Preset = Callable[[str], None]


@pytest.fixture
def preset(monkeypatch: pytest.MonkeyPatch) -> Preset:
    """preset(text): a preset named "mine" with that file."""

    def install(text: str) -> None:
        real = config_layers.preset_text
        monkeypatch.setattr(config_layers, "preset_text", lambda name: text if name == "mine" else real(name))
        monkeypatch.setattr(config_layers, "presets", lambda: [*presets(), "mine"])

    return install


@pytest.fixture
def digits_defaults(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """digits_defaults(key=value, ...): the dataset digits with other defaults."""

    def install(**defaults: object) -> None:
        monkeypatch.setitem(datasets.BUILT_IN, "digits", replace(datasets.get("digits"), defaults=defaults))

    return install


def refusal(*arguments: Any) -> str:
    with pytest.raises(UserError) as caught:
        resolve(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_each_layer_wins_over_the_ones_before(preset: Preset, digits_defaults: Callable[..., None]) -> None:
    digits_defaults(recipe="quick", lr=2.0, momentum=0.2, scale=2.0, weight_decay=0.2)
    preset(
        'method = "limit"\n[settings]\nmomentum = 0.3\nscale = 3.0\nweight_decay = 0.3\n'
        "[on.digits]\nscale = 4.0\nweight_decay = 0.4\ntrial = 4"
    )
    found = resolve("mine", "digits", ["weight_decay=0.5"])
    expected = {
        "nesterov": (True, "default"),
        "batch": (32, "recipe quick"),
        "lr": (2.0, "dataset digits"),
        "momentum": (0.3, "preset mine"),
        "scale": (4.0, "preset mine"),
        "weight_decay": (0.5, "typed"),
    }
    assert {key: (found.settings[key], found.sources[key]) for key in expected} == expected
    assert found.options["trial"] == 4
    assert resolve("mine", "digits", ["trial=6"]).options["trial"] == 6
    assert resolve("mine", "glyphs").settings["scale"] == 3.0  # [on.digits] is for digits alone


def test_options_of_the_dataset_decide_about_its_defaults() -> None:
    assert resolve("limit", "folder", ["size=32"]).settings["encoder"] == "resnet20"
    assert resolve("limit", "folder", ["size=84"]).settings["encoder"] == "resnet18"
    assert resolve("limit", "folder", ["size=84", "encoder=resnet20"]).settings["encoder"] == "resnet20"


def test_presets_name_their_method_and_carry_a_note(preset: Preset) -> None:
    preset('method = "limit"\nnote = "simplified"\n[notes]\nglyphs = "simplified for glyphs"')
    found = resolve("mine", "digits", seed=7)
    assert (found.preset, found.method, found.benchmark, found.seed) == ("mine", "limit", "digits", 7)
    assert found.note == "simplified"
    assert resolve("mine", "glyphs").note == "simplified for glyphs"


def test_a_note_on_settings_is_dropped_where_they_have_other_values(preset: Preset) -> None:
    preset(
        'method = "limit"\n[on.glyphs]\nmeta_steps = 300\ncheck = false\n[notes.glyphs]\n'
        'settings = ["meta_steps", "epochs"]\nnote = "few steps and epochs"'
    )

    def note(*typed: str) -> str:
        return resolve("mine", "glyphs", typed).note

    assert note() == note("meta_steps=300") == note("check=true", "lr=0.2", "trial=2") == "few steps and epochs"
    assert note("meta_steps=5000") == note("epochs=9") == note("steps=90") == note("recipe=paper") == ""


# -- recipes -----------------------------------------------------------------------------------------------------------
def test_the_recipe_is_the_typed_one_or_the_presets_or_the_datasets(preset: Preset) -> None:
    preset('method = "limit"\n[settings]\nrecipe = "paper"\nlr = 0.3')

    def found(name: str, *typed: str) -> list[Any]:
        settings = resolve(name, "glyphs", typed).settings
        return [settings[key] for key in ("recipe", "epochs", "batch", "lr")]

    assert found("limit") == ["quick", 4, 32, 0.05]
    assert found("limit", "recipe=large-batch") == ["large-batch", 300, 256, 0.2]
    assert found("limit", "recipe=none") == ["none", 300, 128, 0.1]  # the method's own
    assert found("mine") == ["paper", 300, 128, 0.3]
    assert found("mine", "recipe=large-batch", "batch=9") == ["large-batch", 300, 9, 0.3]


def test_fine_tuning_has_rates_and_crops_of_its_own() -> None:
    keys = ("epochs", "batch", "lr", "head_lr", "warmup", "label_smoothing", "crop_scale")
    values = [120, 128, 0.002, 0.04, 0, 0.1, 0.3]

    def found(*typed: str) -> list[object]:
        settings = resolve("limit", "folder", typed).settings
        return [settings[key] for key in keys]

    assert found("recipe=fine-tuning") == values
    assert found("recipe=fine-tuning", "crop_scale=0.2") == [*values[:-1], 0.2]
    assert found("recipe=paper") == [300, 128, 0.1, 0.0, 0, 0.0, 0.08]
    config = resolve("limit", "folder", ["recipe=fine-tuning", "head_lr=0.1"])
    assert config.changed == ["recipe=fine-tuning", "head_lr=0.1"]
    assert config.sources["label_smoothing"] == "recipe fine-tuning"


def test_a_dataset_may_change_a_part_of_its_recipe(digits_defaults: Callable[..., None]) -> None:
    digits_defaults(recipe="quick", epochs=6)
    settings = resolve("finetune", "digits").settings
    assert (settings["epochs"], settings["batch"]) == (6, 32)


def test_an_unknown_recipe_is_refused() -> None:
    assert "unknown recipe 'quik': did you mean 'quick'?" in refusal("limit", "digits", ["recipe=quik"])


def test_a_method_without_recipes_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Bare:
        batch: int = 3

    monkeypatch.setattr(methods.get("decoupled-deepemd"), "Settings", Bare)
    found = resolve("decoupled-deepemd", "glyphs")
    assert found.settings == {"batch": 3}
    assert found.changed == []


@pytest.mark.parametrize(
    ("benchmark", "typed", "epochs", "steps"),
    [
        ("glyphs", [], 4, 0),
        ("glyphs", ["steps=70"], 0, 70),
        ("glyphs", ["steps=70", "epochs=0"], 0, 70),
        ("glyphs", ["steps=0"], 4, 0),
        ("digits", [], 0, None),  # the recipe's
        ("digits", ["epochs=0"], 0, None),
        ("digits", ["epochs=7"], 7, 0),
        ("digits", ["epochs=7", "steps=0"], 7, 0),
        ("digits", ["steps=70"], 0, 70),
        ("digits", ["recipe=paper"], 300, 0),
    ],
)
def test_training_lasts_epochs_or_steps(benchmark: str, typed: list[str], epochs: int, steps: int | None) -> None:
    found = resolve("limit", benchmark, typed).settings
    wanted = recipes.values("small")["steps"] if steps is None else steps
    assert (found["epochs"], found["steps"]) == (epochs, wanted)


def test_a_length_must_be_given_and_only_one() -> None:
    assert "give one of them" in refusal("limit", "glyphs", ["epochs=3", "steps=70"])
    assert "give one of them" in refusal("limit", "glyphs", ["epochs=0"])
    assert "give one of them" in refusal("limit", "digits", ["steps=0", "epochs=0"])


@pytest.mark.parametrize("name", [name for name in recipes.names() if name != "none"])
def test_every_recipe_says_what_it_is_for(name: str) -> None:
    assert recipes.why(name)
    assert {"batch", "lr", "warmup"} < set(recipes.values(name))


# -- what is refused ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[settings]\nepoch = 3", "presets/mine.toml, [settings]: unknown setting 'epoch': did you mean 'epochs'"),
        ("[settings]\nsize = 32", "presets/mine.toml, [settings]: unknown setting 'size'"),  # an option of one dataset
        ("[on.folder]\nsise = 32", "presets/mine.toml, [on.folder]: unknown setting 'sise': did you mean 'size'"),
        ("[on.digits]\nsize = 32", "presets/mine.toml, [on.digits]: unknown setting 'size'"),
        ("[on.digit]\nlr = 1", "presets/mine.toml, [on]: unknown dataset 'digit': did you mean 'digits'"),
        ('[notes.digits]\nsettings = ["trial"]\nnote = "x"', "mine.toml, [notes.digits]: unknown setting 'trial'"),
        ('[notes.digits]\nnote = "x"', "mine.toml, [notes.digits]: it needs both note and settings"),
        ('[notes.digits]\nsetting = ["lr"]\nnote = "x"', "mine.toml, [notes.digits]: unknown key 'setting'"),
        ('[notes]\nglyph = "x"', "presets/mine.toml, [notes]: unknown dataset 'glyph': did you mean 'glyphs'"),
        ("[setting]\nlr = 1", "presets/mine.toml: unknown key 'setting': did you mean 'settings'"),
    ],
)
def test_a_preset_with_names_that_nothing_reads_is_refused(preset: Preset, text: str, message: str) -> None:
    preset(f'method = "limit"\n{text}')
    assert message in refusal("mine", "glyphs")
    with pytest.raises(UserError):
        overrides_of("mine", "glyphs", ["lr=1"])


def test_a_preset_may_set_the_run_and_a_datasets_options(preset: Preset) -> None:
    preset('method = "limit"\n[settings]\ntrials = 3\n[on.folder]\nsize = 32')
    found = resolve("mine", "folder")
    assert (found.run["trials"], found.options["size"]) == (3, 32)
    assert found.settings["encoder"] == "resnet20"


def test_a_dataset_whose_defaults_no_method_knows_is_refused(digits_defaults: Callable[..., None]) -> None:
    digits_defaults(meta_steps=3)
    assert "meta_steps" not in resolve("finetune", "digits").settings  # another method's
    digits_defaults(meta_step=3)
    wanted = "defaults of dataset 'digits': unknown setting 'meta_step': did you mean 'meta_steps'"
    assert wanted in refusal("finetune", "digits")


def test_a_name_that_two_would_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Clashing(FinetuneSettings):
        trial: int = setting(1, "also an option of the dataset")

    monkeypatch.setattr(methods.get("finetune"), "Settings", Clashing)
    assert "'trial' is a setting of method 'finetune' and of dataset 'digits'" in refusal("finetune", "digits")

    @dataclass(frozen=True)
    class ClashingWithRun(FinetuneSettings):
        precision: str = setting("", "also a setting of every run")

    monkeypatch.setattr(methods.get("finetune"), "Settings", ClashingWithRun)
    assert "'precision' is a setting of method 'finetune' and of every run" in refusal("finetune", "digits")
