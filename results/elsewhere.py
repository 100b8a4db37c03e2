"""The blocks about accuracy on other data: CUB200, glyphs, Omniglot, and inner benchmarks of base classes."""

from __future__ import annotations

import re
import statistics
from collections import Counter

from fscil import grid, paper
from fscil.config import resolve
from fscil.pairing import at_zero
from fscil.results import Measure, Result, paired_difference
from results.summaries import (
    Results,
    Runs,
    compared,
    difference,
    has_margin,
    listed,
    load,
    margin,
    mean,
    own_lines,
    paper_line,
    paragraph,
    seeds,
    session_table,
    sign,
    spread,
)

METHODS = ("limit-plus", "decoupled-cosine-plus", "limit", "decoupled-cosine")
RESNET18 = ("limit-plus", "decoupled-cosine-plus", "decoupled-cosine")
PAPER_CUB200 = (("LIMIT", "limit", "basic"), ("Decoupled-Cosine", "decoupled-cosine", "basic"))
CHOSEN = ("last", "harmonic_mean")
AT_ZERO = (at_zero("last"), at_zero("harmonic_mean"))
ON_DIGITS = (
    "limit", "cec", "decoupled-cosine", "decoupled-deepemd", "teen", "fact", "topic", "rebalancing", "icarl", "eeil",
    "finetune", "joint",
)  # fmt: skip
INNER = {
    "digits": "digits",
    "glyphs": "glyphs",
    "omniglot": "Omniglot, 100 characters, as a folder",
    "cub200": "CUB200, 50 classes, as a folder, ImageNet weights",
    "cifar-part1": "CIFAR100, classes 0 to 19, as a folder",
    "cifar-part2": "classes 20 to 39",
    "cifar-part3": "classes 40 to 59",
}


def cub200() -> str:
    """Both LIMITs beside class means on their encoders, and what calibration costs there."""
    runs = load("cub200", METHODS)
    plus, means, limit, plain = runs.values()
    per_class = [
        f"{mean(each, lambda one: one.per_class['harmonic_mean']):.2f} (`{name}`)" for name, each in runs.items()
    ]
    text = f"""{seeds(plus).capitalize()}, {plus[0].seed} to {plus[-1].seed}, on one H200; the first two share their
        encoders, and so do the other two. `limit-plus` {compared(plus, means, "area")} class means on the same
        embedding, where it had gained area on base classes; both with margin 0, {gaps(plus, means, *AT_ZERO)}; with
        the margins {margin(plus)} and {margin(means)} that the rule gives them, {gaps(plus, means, *CHOSEN)}. `limit`
        {compared(limit, plain, "area")} class means on the encoders that it starts from
        ({gaps(limit, plain, *CHOSEN)}). The paper's harmonic means seem to be of accuracies per class; computed so,
        ours are {listed(per_class)}."""
    parts = [own_lines(f"**{name}**", results) for name, results in runs.items()]
    table = session_table(*parts, *(paper_lines("cub200", *row) for row in PAPER_CUB200))
    return f"{table}\n{paragraph(text)}"


def resnet18() -> str:
    """CIFAR100 with the 32 px ResNet18: limit-plus beside class means, with and without its embedding."""
    runs = load("cifar100-resnet18", RESNET18)
    plus, means = runs["limit-plus"], runs["decoupled-cosine-plus"]
    text = f"""{seeds(plus).capitalize()}, {plus[0].seed} to {plus[-1].seed}, on one H200, on the same encoders.
        `limit-plus` {compared(plus, means, "area")} class means on the same embedding; with the margins {margin(plus)}
        and {margin(means)} that the rule gives them, {gaps(plus, means, *CHOSEN)}."""
    table = session_table(*(own_lines(f"**{name}**", results) for name, results in runs.items()))
    return f"{table}\n{paragraph(text)}"


def paper_lines(benchmark: str, label: str, method: str, augmentation: str) -> list[list[str]]:
    row = paper.find(benchmark, method, augmentation)
    assert row is not None
    return paper_line(f"_paper: {label}_", row.accuracy, row.pd)


def on_two_cores(benchmark: str) -> str:
    runs = load(benchmark, METHODS)
    plus, means = runs["limit-plus"], runs["decoupled-cosine-plus"]
    command = f"fscil compare {benchmark} --methods {','.join(METHODS)} --seeds {len(plus)}"
    text = f"""`{command}` on two CPU cores. In pairs of the same seed, `limit`
        {compared(runs["limit"], runs["decoupled-cosine"], "area")} class means on the encoders that it starts
        from{if_checked(runs["limit"])}. """
    if {calibrator_of(result) for result in plus} == {"none"}:
        text += "`limit-plus` does not calibrate here, so it gives what class means on its embedding give"
    else:
        text += f"""`limit-plus` {compared(plus, means, "area")} class means on the same embedding; both with margin 0,
            {gaps(plus, means, *AT_ZERO)}"""
        if has_margin(plus) or has_margin(means):
            text += f"""; with the margins {margin(plus)} and {margin(means)} that the rule gives them,
                {gaps(plus, means, *CHOSEN)}"""
    text += f"{if_checked(plus)}."
    table = session_table(*(own_lines(f"**{name}**", results) for name, results in runs.items()))
    return f"{table}\n{paragraph(text)}"


def digits() -> str:
    """Every method, the upper bound included, from the best last session down."""
    runs = dict(sorted(load("digits", ON_DIGITS).items(), key=lambda each: -mean(each[1], "last")))
    limit, joint = runs["limit"], runs["joint"]
    above = [f"`{name}`" for name in runs if mean(runs[name], "last") > mean(joint, "last")]
    ends = f"{listed(above)} end above" if above else "Nothing ends above"
    text = f"""`fscil compare digits --methods all --seeds {len(limit)} --jobs 2` on two CPU cores. {ends} `joint`,
        which is trained afresh after the last session only; those before it are answered by class means. Where
        `limit` does not calibrate, it gives what class means give{if_checked(limit)}."""
    table = session_table(*(own_lines(f"**{name}**", results) for name, results in runs.items()))
    return f"{table}\n{paragraph(text)}"


def if_checked(results: Results) -> str:
    """Of runs that tried their calibrators first: how many use one, and what each gained on base classes."""
    if not all("checked" in result.note for result in results):
        return ""
    gained: dict[str, list[float]] = {}
    for result in results:
        for name, gain in re.findall(r"(\w+) ([+-][\d.]+) ±", result.note):
            gained.setdefault(name, []).append(float(gain))
    used = sum(calibrator_of(result) != "none" for result in results)
    gains = listed([f"{name} {statistics.fmean(found):+.2f}" for name, found in gained.items()])
    return f" ({used} of {len(results)} runs calibrate; on base classes that changes area by: {gains})"


def gaps(a: Results, b: Results, last: str | Measure, harmonic_mean: str | Measure) -> str:
    return f"{difference(a, b, last)} in the last session and {difference(a, b, harmonic_mean)} in harmonic mean"


def load_inner(name: str) -> Runs:
    found = load("inner", [f"{name}-limit-plus", f"{name}-decoupled-cosine-plus"])
    return dict(zip(("limit-plus", "class means"), found.values(), strict=True))


def inner() -> str:
    """Area of limit-plus and of class means on the same embedding, and how each run calibrated."""
    lines = [["", "classes", "`limit-plus`", "class means", "difference", "calibrator"]]
    behind = []
    for name, label in INNER.items():
        runs = load_inner(name)
        plus, means = runs["limit-plus"], runs["class means"]
        base, *later = plus[0].classes_per_session
        used = Counter(map(calibrator_of, plus))
        lines.append(
            [
                label,
                f"{base} + {sum(later)}",
                *(spread(results, "area") for results in (plus, means)),
                difference(plus, means, "area"),
                ", ".join(each if len(used) == 1 else f"{each} ({n})" for each, n in used.most_common()),
            ]
        )
        gap, error, n = paired_difference(plus, means, "area")
        if gap + (error if n > 1 else 0.0) < -1e-9:  # of rounding: equal if one seed alone differs
            behind.append(label)
    text = paragraph(
        f"""Areas, {seeds(plus)} each. `limit-plus` is behind class means by more than the standard error on
        {listed(behind) if behind else "none of them"}."""
    )
    return f"{grid.markdown(lines)}\n{text}"


def calibrator_of(result: Result) -> str:
    """As the run's note says if it checked calibration first, otherwise as its settings do; none: class means."""
    if chosen := re.search(r"calibration by (\w+), checked", result.note):
        return chosen[1]
    if "calibration is off" in result.note:
        return "none"
    config = resolve(result.preset, result.benchmark.removesuffix("-validation"), result.changed)
    return str(config.settings["calibrator"]).replace("cosine", "none")


def in_short() -> str:
    """For the README: what calibration is worth on the inner benchmarks."""
    found = {name: load_inner(name) for name in INNER}
    gaps = [paired_difference(runs["limit-plus"], runs["class means"], "area")[0] for runs in found.values()]
    signs = Counter(sign(runs["limit-plus"], runs["class means"], "area") for runs in found.values())
    used = [calibrator_of(result) for runs in found.values() for result in runs["limit-plus"]]
    told = f"""On {len(found)} smaller benchmarks, made of base classes, `limit-plus` differs from class means on the
        same embedding by {min(gaps):+.2f} to {max(gaps):+.2f} of area: clearly better on {signs[1]} of them, clearly
        worse on {signs[-1]}"""
    if off := used.count("none"):
        told += f"; in {off} of {len(used)} runs it does not calibrate, since that did not help on base classes"
    return f"{told}."
