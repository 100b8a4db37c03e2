"""Methods against each other in pairs of the same seed: only where they start from one embedding, at stated margins."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fscil import grid
from fscil.config import Config, resolve, toml_value
from fscil.errors import UserError
from fscil.margins import new_at_base_accuracy
from fscil.methods.pretrain import PretrainSettings
from fscil.methods.prototypes import EmbeddingSettings
from fscil.results import Measure, Result, paired_difference

CLASS_MEANS = "decoupled-cosine"  # the yardstick
TRANSFORMED = {name: getattr(EmbeddingSettings(), name) for name in ("power", "mirror", "shift", "whiten")}
PRETRAINED = [field.name for field in dataclasses.fields(PretrainSettings) if field.name != "recipe"]


def paired_lines(groups: grid.Groups, configs: Mapping[str, Config], a: str, b: str) -> list[str]:
    """Method a minus method b: last session, harmonic mean and area, and new classes at equal base accuracy."""
    if differing := different_embedding(configs[a], configs[b]):
        return [not_paired(configs, a, b, differing)]
    mine, others = groups[a], groups[b]
    n = paired_difference(mine, others, "last")[2]
    found: list[tuple[str, dict[str, str | Measure]]]
    found = [("margin 0", {"last session": at_zero("last"), "harmonic mean": at_zero("harmonic_mean")})]
    if chosen := chosen_margins(mine, others):
        found.append((chosen, {"last session": "last", "harmonic mean": "harmonic_mean"}))
    found.append(("any margin", {"area": "area"}))
    class_means = [name for name in (b, a, *groups) if configs[name].method == CLASS_MEANS]
    yardstick = next((name for name in class_means if not different_embedding(configs[name], configs[a])), None)
    if yardstick:
        found.append((f"base accuracy of {yardstick} at margin 0", {"new classes": new_at_base_of(groups[yardstick])}))
    seeds = f"{n} seeds, paired error and t-test" if n > 1 else "one seed"
    lines = [f"{a} - {b}, from the same embedding ({seeds})"]
    for where, measures in found:
        known = {name: key for name, key in measures.items() if grid.has_pairs(mine, others, key)}
        if known:
            gaps = [f"{name} {difference_with_p(mine, others, key)}" for name, key in known.items()]
            lines.append(f"  {where}: {', '.join(gaps)}")
    return lines


def difference_with_p(a: Sequence[Result], b: Sequence[Result], key: str | Measure) -> str:
    """The mean difference with its standard error and, of several seeds, the p of a paired t-test."""
    mean, error, n = paired_difference(a, b, key)
    shown = grid.difference(a, b, key)
    if n < 2 or error == 0:
        return shown
    from scipy.stats import t  # a third of a second

    p = 2 * float(t.sf(abs(mean / error), n - 1))
    return f"{shown} (p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})"


def different_embedding(a: Config, b: Config) -> list[str]:
    """The settings that decide about the embedding and are not the same in both."""
    mine, others = embedding(a), embedding(b)
    return [key for key in {**mine, **others} if mine.get(key) != others.get(key)]


def unlike_encoders(configs: Mapping[str, Config]) -> list[str]:
    """A line that says which rows have which pre-training, if it is not the same in all of them."""
    shared = {row: config.settings for row, config in configs.items() if pretrains_as_others(config)}
    values = [{toml_value(settings[key]) for settings in shared.values()} for key in PRETRAINED]
    differing = ["recipe", *(key for key, its in zip(PRETRAINED, values, strict=True) if len(its) > 1)]
    groups: dict[str, list[str]] = {}
    for row in configs:
        told = " ".join(f"{key}={shared[row][key]}" for key in differing) if row in shared else "its own training"
        groups.setdefault(told, []).append(row)
    if len(groups) < 2:
        return []
    *few, (most, rest) = sorted(groups.items(), key=lambda group: len(group[1]))
    parts = [f"{', '.join(rows)}: {told}" for told, rows in few]
    parts.append(f"{'the others' if len(rest) > 1 else rest[0]}: {most}")
    return [f"encoders differ: {'; '.join(parts)}"]


def pretrains_as_others(config: Config) -> bool:
    return "recipe" in config.settings and not config.own_training


def same_embedding(a: Result, b: Result) -> bool:
    """The same for results; a preset that has changed since, or is not installed, leaves it unknown: not paired."""
    try:
        configs = [
            resolve(each.preset, each.benchmark.removesuffix("-validation"), each.changed, each.seed) for each in (a, b)
        ]
    except UserError:
        return False
    known = all(config.hash == each.config_hash for config, each in zip(configs, (a, b), strict=True))
    return known and not different_embedding(*configs)


def embedding(config: Config) -> dict[str, Any]:
    """What decides which images the encoder learns from, how, and what is done to its features."""
    settings = {**TRANSFORMED, **config.settings}
    which = {key: settings.get(key) for key in (*PRETRAINED, *TRANSFORMED)}
    which["training"] = config.method if config.own_training else "shared"
    return {**which, **config.options, **{key: config.run.get(key) for key in ("validation", "precision")}}


def not_paired(configs: Mapping[str, Config], a: str, b: str, differing: Sequence[str]) -> str:
    told = f"{a} and {b} are not paired, since their embeddings differ in {', '.join(differing)}"
    if not all(key in configs[name].settings for key in differing for name in (a, b)):
        return told
    values = " ".join(f"{key}={toml_value(configs[a].settings[key])}" for key in differing)
    return f"{told}; to pair them, set the same for both, for instance {values}"


def chosen_margins(a: Sequence[Result], b: Sequence[Result]) -> str:
    """The margins that the methods were run with; empty if neither has one."""
    margins = [f"{group[0].margin or 0:g}" for group in (a, b)]
    if margins == ["0", "0"]:
        return ""
    return f"margin {margins[0]}" if margins[0] == margins[1] else f"margins {' and '.join(margins)}"


def at_zero(key: str) -> Measure:
    def value(result: Result) -> float | None:
        numbers: Mapping[str, Any] = result.margin_zero or {}
        return numbers.get(key)

    return value


def new_at_base_of(yardstick: Sequence[Result]) -> Measure:
    """Accuracy on new classes with the margin that gives the base accuracy of the yardstick, which itself has none."""
    of_seed = {(result.seed, result.trial): result for result in yardstick}

    def value(result: Result) -> float | None:
        its = of_seed.get((result.seed, result.trial))
        if its is None or its.margin_zero is None or its.margin_zero["base"] is None:
            return None
        if result is its:
            return its.margin_zero["new"]
        return new_at_base_accuracy(result.curve, its.margin_zero["base"])

    return value
