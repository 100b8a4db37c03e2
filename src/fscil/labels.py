"""Labels of runs in tables and pictures: short, and different wherever the settings differ."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fscil.results import Result

Group = Sequence["Result"]  # runs that differ in seed or trial only

LONGEST = 24  # characters of a label; settings that would make it longer go into a footnote


@dataclass(frozen=True)
class Label:
    text: str  # unique within its table
    footnote: str  # what the letter in the text stands for; empty if it has none


@dataclass(frozen=True)
class Labels:
    each: list[Label]  # one for every group
    shared: list[str]  # settings that all groups have in common


def repetitions(results: Sequence[Result]) -> list[list[Result]]:
    """Groups of results that differ in seed or trial only; a run given twice does not count as two seeds."""
    groups: dict[tuple[object, ...], list[Result]] = {}
    times_met: Counter[tuple[object, ...]] = Counter()
    for result in results:
        settings = (settings_hash(result), result.augmentation, result.weights)
        same = (result.benchmark, *result.classes_per_session, result.method, result.preset, *settings)
        run = (*same, result.seed, result.trial)
        groups.setdefault((*same, times_met[run]), []).append(result)
        times_met[run] += 1
    return list(groups.values())


def settings_hash(result: Result) -> str:
    """The part of the configuration's hash that the repetitions of a run share."""
    return result.config_hash.partition("-")[0]


def title_of(result: Result) -> str:
    return result.title or result.benchmark


def by_benchmark(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results of each benchmark, by its title."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(title_of(result), []).append(result)
    return found


def name_of(result: Result) -> str:
    return result.preset or result.method


def runs_in_words(group: Group) -> str:
    if len(group) == 1:
        return f"seed {group[0].seed}"
    return f"{len(group)} {'seeds' if len({r.seed for r in group}) == len(group) else 'runs'}"


def margin_in_words(group: Group) -> str:
    """Empty without a margin, and where results are too old to say."""
    margins = dict.fromkeys(f"{result.margin:g}" for result in group if result.margin)
    return f"margin {', '.join(margins)}" if margins else ""


def weights_name(result: Result) -> str:
    """The name of the weights, without the checksum."""
    return result.weights.partition(" sha256:")[0]


def settings_in_words(result: Result) -> list[str]:
    """Augmentation, weights and memory, then the settings that were changed."""
    told = {"augmentation": result.augmentation, "weights": weights_name(result), "memory": result.memory}
    told = {key: value for key, value in told.items() if value not in ("", "none")}
    words = [value if key == "augmentation" else f"{key} {value}" for key, value in told.items()]
    return words + [word for word in result.changed if word.partition("=")[0] not in (*told, "trial", "seed")]


def labels(groups: Sequence[Group]) -> Labels:
    """A method's name, followed by the settings that not all of these groups share, or a letter for them."""
    settings = [settings_in_words(group[0]) for group in groups]
    shared = [word for word in settings[0] if all(word in words for words in settings)] if settings else []
    own = [[word for word in words if word not in shared] for words in settings]
    tell_apart(groups, own)
    each: list[Label] = []
    for group, words in zip(groups, own, strict=True):
        name, details = name_of(group[0]), ", ".join(words)
        text = f"{name} {' '.join(words)}".rstrip()
        if len(text) <= LONGEST:
            each.append(Label(text, ""))
            continue
        mark = f" [{letter(sum(bool(label.footnote) for label in each))}]"
        cut = name if len(name + mark) <= LONGEST else name[: LONGEST - len(mark) - 1] + "…"
        each.append(Label(cut + mark, details if cut == name else f"{name} {details}".rstrip()))
    return Labels(each, shared)


def tell_apart(groups: Sequence[Group], own: list[list[str]]) -> None:
    """Where name and settings are the same, add what differs; a run given twice gets a number."""
    for fact in (lambda r: f"configuration {settings_hash(r)}", lambda r: f"weights {r.weights}"):
        named = [(name_of(group[0]), *words) for group, words in zip(groups, own, strict=True)]
        facts = [fact(group[0]) for group in groups]
        for i, name in enumerate(named):
            if len({f for f, other in zip(facts, named, strict=True) if other == name}) > 1:
                own[i] = [*own[i], facts[i]]
    met: Counter[tuple[str, ...]] = Counter()
    for i, group in enumerate(groups):
        name = (name_of(group[0]), *own[i])
        met[name] += 1
        if met[name] > 1:
            own[i] = [*own[i], f"({met[name]})"]


def letter(position: int) -> str:
    alphabet = string.ascii_lowercase
    return alphabet[position] if position < len(alphabet) else str(position + 1)


def footnotes(found: Labels) -> list[tuple[str, str]]:
    """(mark, text) in the order of the labels."""
    return [(label.text.rpartition(" ")[2], label.footnote) for label in found.each if label.footnote]
