"""Config: the complete configuration of a run, from defaults, a recipe, a preset and key=value arguments."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fscil import calibrators, datasets, encoders, methods, recipes
from fscil.config_layers import RunSettings, dataset_defaults, known_settings, presets, read_preset
from fscil.errors import UserError
from fscil.files import read_regular
from fscil.naming import choose, quotable
from fscil.settings import make, parse

__all__ = ["Config", "check_overrides", "config_hash", "overrides_of", "presets", "read_config", "resolve", "to_toml"]
SECTIONS = ("settings", "options", "run")
LAST_SEED = 2**63 - 1
LARGEST_FILE = 2**20  # bytes of a config.toml; ours have about 2,000
AGAIN = "another version of fscil had it here; start the run again"


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
    sources: dict[str, str] = field(default_factory=dict, compare=False, repr=False)  # key -> source of its value

    def as_dict(self) -> dict[str, Any]:
        """The configuration without the sources of its values."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.compare}

    @property
    def hash(self) -> str:
        return config_hash(self.as_dict())

    @property
    def changed(self) -> list[str]:
        """The shortest list of key=value that, typed after `fscil run PRESET BENCHMARK`, gives this configuration."""
        plain = resolve(self.preset, self.benchmark)
        first = different(self.options, plain.options)
        first |= {key: value for key, value in different(self.settings, plain.settings).items() if key == "recipe"}
        # other defaults depend on the options and the recipe, so what else differs shows only once these are set
        nearer = resolve(self.preset, self.benchmark, overrides_from(first))
        rest = different(self.settings, nearer.settings) | different(self.run, nearer.run)
        if "recipe" in nearer.settings:
            rest.pop(other_length(rest), None)
        return overrides_from(first | rest)

    @property
    def command(self) -> str:
        """The command that starts this run."""
        return shlex.join(["fscil", "run", self.preset, self.benchmark, *self.changed, "--seed", str(self.seed)])

    def method_settings(self) -> Any:
        return make(methods.get(self.method).Settings, self.settings)

    @property
    def own_training(self) -> bool:
        """Whether its encoder comes from another training than the one that methods share."""
        return methods.get(self.method).own_training(self.method_settings())

    def dataset_options(self) -> Any:
        return make(datasets.get(self.benchmark).options, self.options)

    def run_settings(self) -> RunSettings:
        return make(RunSettings, self.run)


def resolve(preset: str, benchmark: str, overrides: Sequence[str] = (), seed: int = 1) -> Config:
    """The method's defaults, then the recipe, the dataset's defaults, the preset, what was typed; later ones win."""
    method, text = read_preset(preset)
    dataset = datasets.get(benchmark)
    if type(seed) is not int or not 0 <= seed <= LAST_SEED:
        raise UserError(f"seed={quotable(seed)} is not a whole number from 0 to {LAST_SEED}")
    known = known_settings(method, benchmark)
    typed = dict(split_override(override) for override in overrides)
    for key in typed:
        choose(key, known, "setting", see=f"`fscil run {preset} {benchmark} --show-config` shows all")

    here = text.get("on", {}).get(benchmark, {})
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (f"dataset {benchmark}", dataset_defaults(dataset, make(dataset.options, {**here, **typed}), method)),
        (f"preset {preset}", text.get("settings", {})),
        (f"preset {preset}", here),
        ("typed", typed),
    ]
    classes = {"settings": methods.get(method).Settings, "options": dataset.options, "run": RunSettings}
    sections = {section: dataclasses.asdict(cls()) for section, cls in classes.items()}
    values = {key: value for section in sections.values() for key, value in section.items()}
    pretrains = "recipe" in known
    if pretrains:
        names = [values["recipe"], *(layer["recipe"] for _, layer in layers if "recipe" in layer)]
        layers.insert(0, (f"recipe {names[-1]}", recipes.values(names[-1])))

    sources = dict.fromkeys(values, "default")
    for source, layer in layers:
        own = {key: parse(*known[key], value) for key, value in layer.items() if key in known}
        values.update(own)
        sources.update(dict.fromkeys(own, source))
        if pretrains and (other := other_length(own)) and values[other]:
            values[other], sources[other] = 0, source
    if "encoder" in known:
        encoders.check(values["encoder"])
    if "calibrator" in known:
        for name in values["calibrator"].split(","):  # a check may choose among several
            choose(name.strip(), calibrators.names(), "calibrator")
    if pretrains and not (values["epochs"] or values["steps"]):
        raise UserError("epochs=0 and steps=0 leave nothing to pre-train with; give one of them")
    complete = {section: {key: values[key] for key in defaults} for section, defaults in sections.items()}
    note = text.get("notes", {}).get(benchmark, text.get("note", ""))
    if isinstance(note, dict):  # it speaks of settings, and is true only of the preset's own values
        plain = resolve(preset, benchmark).settings if typed else values
        note = note["note"] if all(values[key] == plain[key] for key in note["settings"]) else ""
    return Config(preset, method, benchmark, seed, note=note, sources=sources, **complete)


def other_length(given: Mapping[str, Any]) -> str:
    """Pre-training lasts for a number of epochs or of steps: giving one of them sets the other, named here, to 0."""
    epochs, steps = given.get("epochs"), given.get("steps")
    if epochs and steps:
        raise UserError(f"epochs={epochs} and steps={steps} both set the length of pre-training; give one of them")
    return "steps" if epochs else "epochs" if steps else ""


def different(values: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value != others[key]}


def overrides_from(values: Mapping[str, Any]) -> list[str]:
    """key=value, as resolve() reads it back."""
    return [f"{key}={value if isinstance(value, str) else toml_value(value)}" for key, value in values.items()]


def overrides_of(preset: str, benchmark: str, overrides: Sequence[str]) -> list[str]:
    """The overrides that this method knows, for comparing several methods with the same ones."""
    known = known_settings(read_preset(preset)[0], benchmark)
    return [override for override in overrides if split_override(override)[0] in known]


def check_overrides(names: Sequence[str], benchmark: str, overrides: Sequence[str]) -> None:
    """Refuse a setting that none of the methods knows."""
    for override in overrides:
        if not any(overrides_of(name, benchmark, [override]) for name in names):
            resolve(names[0], benchmark, [override])  # raises an error with the right names


def split_override(override: str) -> tuple[str, str]:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise UserError(f"'{quotable(override)}' is not a setting; write key=value, for instance epochs=10")
    return key.strip().replace("-", "_"), value.strip()


def to_toml(config: Config, explain: bool = False) -> str:
    """The whole configuration; with explain, where every value comes from and what it is for."""
    known = known_settings(config.method, config.benchmark)
    lines = [
        f"{name} = {toml_value(getattr(config, name))}" for name in ("preset", "method", "benchmark", "seed", "note")
    ]
    for section in SECTIONS:
        lines += ["", f"[{section}]"]
        for key, value in getattr(config, section).items():
            comment = f"  # {explanation(known[key][0], value, config.sources[key])}" if explain else ""
            lines.append(f"{key} = {toml_value(value)}{comment}")
    return "\n".join(lines) + "\n"


def explanation(setting: dataclasses.Field[Any], value: Any, source: str) -> str:
    """For instance "typed; default 0.1, the paper's. learning rate"."""
    origin = f", {setting.metadata['origin']}" if setting.metadata.get("origin") else ""
    if source == "default":
        source += origin
    elif value != setting.default is not dataclasses.MISSING:
        source += f"; default {toml_value(setting.default)}{origin}"
    why = setting.metadata.get("why", "")
    if setting.name == "recipe" and recipes.why(value):
        why += f"; {value}: {recipes.why(value)}"
    return f"{source}. {why}" if why else source


def toml_value(value: Any) -> str:
    """Strings, numbers, booleans and lists look the same in JSON and TOML."""
    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")  # the one character that JSON leaves alone and TOML does not allow


def read_config(path: Path) -> Config:
    """A run folder's config.toml, checked like anything a person may have edited."""
    try:
        text: Mapping[str, Any] = tomllib.loads(read_regular(path, LARGEST_FILE).decode())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; name a run folder, as made by `fscil run`") from error
    except (ValueError, RecursionError) as error:  # also of a whole number with thousands of digits
        raise UserError(f"{path} is not valid TOML ({quotable(error)}); start the run again") from error
    names = [each.name for each in dataclasses.fields(Config) if each.compare]
    if missing := [name for name in names if name not in text]:
        raise UserError(f"{path} lacks {', '.join(missing)}; start the run again")
    kinds = {"seed": int, **dict.fromkeys(SECTIONS, dict)}
    if not all(isinstance(text[name], kinds.get(name, str)) for name in names):
        raise UserError(f"{path} is not a run's configuration; start the run again")
    values = [(key, value) for section in SECTIONS for key, value in text[section].items()]
    for key, value in values:
        if not isinstance(value, str | int | float) or (isinstance(value, int) and abs(value) >= 2**63):
            raise UserError(
                f"{path} has {quotable(key)} = {quotable(value)}, which no setting can be; start the run again"
            )
    given = [f"{key}={value}" for key, value in values]
    checked = resolve(text["preset"], text["benchmark"], given, text["seed"])
    choose(text["method"], [checked.method], "method", where=str(path))
    parsed: dict[str, Any] = {}
    for section in SECTIONS:  # keys that an older version did not write are not added, so that the run keeps its hash
        own, where = getattr(checked, section), f"{path}, [{section}]"
        parsed[section] = {choose(key, own, "setting", where=where, see=AGAIN): own[key] for key in text[section]}
    config = dataclasses.replace(checked, note=text["note"], **parsed)
    sources = resolve(config.preset, config.benchmark, config.changed).sources
    return dataclasses.replace(config, sources=sources)


def config_hash(config: Mapping[str, Any]) -> str:
    """A name for a run's settings, "SETTINGS-RUN" in hex digits; the order of the keys does not matter.

    The first part leaves out the seed (a key of the configuration itself) and the trial (also where it is an option of
    the dataset): runs that share it are repetitions of one another, and tables take their mean. The whole hash is
    different for every configuration, so it can serve as a cache key.
    """
    settings = without_trial({key: value for key, value in config.items() if key != "seed"})
    return f"{digest(settings)[:12]}-{digest(config)[:8]}"


def without_trial(config: Mapping[str, Any]) -> dict[str, Any]:
    items = ((key, value) for key, value in config.items() if key != "trial")
    return {key: without_trial(value) if isinstance(value, Mapping) else value for key, value in items}


def digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(dict(value), sort_keys=True, default=str).encode()).hexdigest()
