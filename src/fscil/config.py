"""Config: what a run is made of, complete, from defaults, presets and key=value arguments."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from fscil import datasets, methods
from fscil.errors import UserError
from fscil.naming import choose
from fscil.settings import fields_of, make, parse, setting


@dataclass(frozen=True)
class RunSettings:
    """What belongs to neither the method nor the dataset."""

    validation: str = setting(
        "none",
        "classes: run on an inner benchmark of base classes, to choose settings without any test image",
        choices=("none", "classes"),
    )
    trials: int = setting(
        0, "repeat the few-shot sessions with shots drawn by seeds 1..E (the paper's other protocol has 30)", least=0
    )
    precision: str = setting(
        "auto", "of gradient steps: bfloat16 on a GPU, float32 on a CPU", choices=("auto", "float32")
    )
    segment_mib: int = setting(
        512, "augmented images that lie on the device at once; longer epochs are prepared in parts", least=1
    )


@dataclass(frozen=True)
class Config:
    preset: str  # the name that was asked for: a method, or a preset of one
    method: str
    benchmark: str
    seed: int
    settings: dict[str, Any]  # of the method
    options: dict[str, Any]  # of the dataset
    run: dict[str, Any]
    note: str = ""  # what the preset simplifies

    @property
    def hash(self) -> str:
        return config_hash(dataclasses.asdict(self))

    def method_settings(self) -> Any:
        return make(methods.get(self.method).Settings, self.settings)

    def dataset_options(self) -> Any:
        return make(datasets.get(self.benchmark).options, self.options)

    def run_settings(self) -> RunSettings:
        return make(RunSettings, self.run)


def presets() -> list[str]:
    """All names that `fscil run` takes: methods and presets of methods."""
    files = (f.name for f in resources.files("fscil.presets").iterdir())
    return sorted({*methods.names(), *(name[: -len(".toml")] for name in files if name.endswith(".toml"))})


def resolve(preset: str, benchmark: str, overrides: Sequence[str] = (), seed: int = 1) -> Config:
    """Method defaults, then benchmark defaults, then the preset, then what was typed."""
    choose(preset, presets(), "method")
    text = read_preset(preset)
    method = text.get("method", preset)
    dataset = datasets.get(benchmark)
    classes = {"settings": methods.get(method).Settings, "options": dataset.options, "run": RunSettings}
    known = fields_of(*classes.values())
    typed = dict(split_override(override) for override in overrides)
    for key in typed:
        choose(key, known, "setting")

    here = text.get("on", {}).get(benchmark, {})
    options = make(dataset.options, {**here, **typed})
    given = {**dataset.defaults_for(options), **text.get("settings", {}), **here, **typed}
    values: dict[str, dict[str, Any]] = {}
    for section, cls in classes.items():
        defaults = dataclasses.asdict(cls())
        own = {key: parse(known[key][0], known[key][1], value) for key, value in given.items() if key in defaults}
        values[section] = {**defaults, **own}
    note = text.get("notes", {}).get(benchmark, text.get("note", ""))
    return Config(preset, method, benchmark, seed, note=note, **values)


def overrides_of(preset: str, benchmark: str, overrides: Sequence[str]) -> list[str]:
    """Those overrides that this method knows, where several methods are run with the same ones."""
    method = read_preset(choose(preset, presets(), "method")).get("method", preset)
    known = fields_of(methods.get(method).Settings, datasets.get(benchmark).options, RunSettings)
    return [override for override in overrides if split_override(override)[0] in known]


def check_overrides(names: Sequence[str], benchmark: str, overrides: Sequence[str]) -> None:
    """Refuse a setting that none of the methods knows."""
    for override in overrides:
        if not any(overrides_of(name, benchmark, [override]) for name in names):
            resolve(names[0], benchmark, [override])  # says what would have been right


def split_override(override: str) -> tuple[str, str]:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise UserError(f"{override!r} is not a setting; write key=value, for instance epochs=10")
    return key.strip().replace("-", "_"), value.strip()


def read_preset(name: str) -> dict[str, Any]:
    file = resources.files("fscil.presets") / f"{name}.toml"
    return tomllib.loads(file.read_text()) if file.is_file() else {}


def to_toml(config: Config, explain: bool = False) -> str:
    """The whole configuration; with explain, every value's reason behind it."""
    whys = fields_of(methods.get(config.method).Settings, datasets.get(config.benchmark).options, RunSettings)
    lines = [
        f"{name} = {toml_value(getattr(config, name))}" for name in ("preset", "method", "benchmark", "seed", "note")
    ]
    for section in ("settings", "options", "run"):
        lines += ["", f"[{section}]"]
        for key, value in getattr(config, section).items():
            why, default = whys[key][0].metadata.get("why", ""), whys[key][0].default
            if value != default and default is not dataclasses.MISSING:
                why = f"in place of {toml_value(default)}: {why}"
            lines.append(f"{key} = {toml_value(value)}" + (f"  # {why}" if explain and why else ""))
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """Strings, numbers, booleans and lists look alike in JSON and TOML."""
    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")  # the one character that JSON leaves alone and TOML does not allow


def read_config(path: Path) -> Config:
    """A run folder's config.toml, checked like anything a person may have edited."""
    try:
        text: Mapping[str, Any] = tomllib.loads(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; name a run folder, as `fscil run` makes it") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML ({error}); start the run again") from error
    names = [field.name for field in dataclasses.fields(Config)]
    if missing := [name for name in names if name not in text]:
        raise UserError(f"{path} lacks {', '.join(missing)}; start the run again")
    config = Config(**{name: text[name] for name in names})
    sections = (config.settings, config.options, config.run)
    if not (all(isinstance(section, dict) for section in sections) and isinstance(config.seed, int)):
        raise UserError(f"{path} is not a run's configuration; start the run again")
    given = [f"{key}={value}" for section in sections for key, value in section.items()]
    resolve(config.preset, config.benchmark, given, config.seed)
    return config


def config_hash(config: Mapping[str, Any]) -> str:
    """A name for a run's settings, "SETTINGS-RUN" in hex digits; the order of the keys does not matter.

    The first part leaves out the seed (a key of the configuration itself) and the trial (also where it is an option of
    the dataset): runs that share it are repetitions of one another, and tables take their mean. The whole is different
    for every configuration, so it may serve as the key of a cache.
    """
    settings = without_trial({key: value for key, value in config.items() if key != "seed"})
    return f"{digest(settings)[:12]}-{digest(config)[:8]}"


def without_trial(config: Mapping[str, Any]) -> dict[str, Any]:
    items = ((key, value) for key, value in config.items() if key != "trial")
    return {key: without_trial(value) if isinstance(value, Mapping) else value for key, value in items}


def digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(dict(value), sort_keys=True, default=str).encode()).hexdigest()
