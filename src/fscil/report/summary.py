"""The start of a report: how many images were right, then every number of every session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, combinations
from operator import attrgetter
from typing import Any

from fscil.labels import Labels, runs_in_words
from fscil.report.confusion import class_counts
from fscil.report.markup import Cell, Markup, bar, join, table, tag
from fscil.results import Result, paired_difference
from fscil.table_lines import Line, column_names, is_gain, mean_and_deviation, number, published_row, table_lines
from fscil.tables import notes

Groups = list[list[Result]]
Comparable = Callable[[Result, Result], bool]  # whether a difference between two results means something


def always(a: Result, b: Result) -> bool:
    return True


Measure = Callable[[Result], float | None]

WITHOUT_MARGIN = "both with margin 0"


def headlines(groups: Groups, named: Labels) -> Markup:
    """One sentence per method, and what its label leaves out."""
    sentences = [tag("p", *sentence(group), class_="headline") for group in groups]
    if len(groups) > 1:
        sentences = [
            tag("p", tag("b", label.text), ": ", *sentence(group), class_="headline")
            for group, label in zip(groups, named.each, strict=True)
        ]
    return join([*sentences, *(tag("p", f"{mark} {text}", class_="soft") for mark, text in notes(named))])


def sentence(group: Sequence[Result]) -> list[str]:
    counts = class_counts(group)
    right, images = (sum(values) / len(group) for values in zip(*counts, strict=True))
    things = "photos" if group[0].benchmark == "folder" else "images"
    (base, new), _ = mean_and_deviation([(r.base, r.new) for r in group])
    parts = "" if base is None or new is None else f" (base classes {base:.0f}\u00a0%, new classes {new:.0f}\u00a0%)"
    mean = f", the mean of {runs_in_words(group)}" if len(group) > 1 else ""
    chance = f"guessing among {len(counts)} classes gives {count_in_words(images / len(counts))}."
    said = f" test {things} right after the last session{parts}{mean}; {chance}"
    return [tag("b", f"{right:,.0f} of {images:,.0f}"), said]


def count_in_words(count: float) -> str:
    whole = round(count)
    return f"{whole:,}" if whole == count else f"about {whole:,}" if whole else "less than 1"


def tiles(group: Sequence[Result]) -> Markup:
    """The four key numbers of a single method, with their difference from the paper's."""
    lines = table_lines(group)
    ours = lines[0]
    published = next((line for line in lines if line.kind == "paper"), None)
    gap = next((line for line in lines if line.kind == "difference"), None)
    last = str(len(group[0].accuracy) - 1)
    columns = column_names(group)

    def tile(name: str, column: str) -> Markup:
        at = columns.index(column)
        difference, theirs = (gap.values[at], published.values[at]) if gap and published else (None, None)
        note = Markup()
        if difference is not None:
            note = tag(
                "span", signed(difference, is_gain(column, difference)), f" against the paper's {number(theirs)}"
            )
        elif theirs is not None:
            note = tag("span", f"the paper, per class: {number(theirs)}")
        return tag("div", tag("span", name), tag("b", number(ours.values[at])), note, class_="tile")

    tiled = [("Last session", last), ("Drop (PD)", "PD"), ("Average", "average"), ("Harmonic mean", "HM")]
    return tag("div", *(tile(name, column) for name, column in tiled), class_="tiles")


def signed(difference: float, is_better: bool) -> Markup:
    """A difference, coloured by whether it favours the first."""
    if not round(difference, 2):
        return tag("span", number(difference, signed=True))
    return tag("em", number(difference, signed=True), class_="gain" if is_better else "loss")


def differences(groups: Groups, named: Labels, comparable: Comparable) -> Markup:
    """Comparable methods against each other, seed by seed; also with margin 0, where one of the two has a margin."""
    compared = {"last": "last session", "average": "average", "harmonic_mean": "HM"}
    has_area = any(result.area is not None for group in groups for result in group)
    rows: list[list[str]] = []
    for (a, label_a), (b, label_b) in combinations(zip(groups, named.each, strict=True), 2):
        shared = {run_of(r) for r in a} & {run_of(r) for r in b}
        if not shared or not comparable(a[0], b[0]):
            continue
        pair = [r for r in a if run_of(r) in shared], [r for r in b if run_of(r) in shared]
        seeds = "1 seed" if len(shared) == 1 else f"{len(shared)} seeds"
        cells = [paired_cell(*pair, attrgetter(key)) for key in (*compared, *(["area"] * has_area))]
        rows.append([join([f"{label_a.text} − {label_b.text}", tag("small", seeds)]), *cells])
        if any(result.margin for result in chain(*pair)):
            cells = [paired_cell(*pair, at_margin_zero(key)) for key in compared]
            rows.append([WITHOUT_MARGIN, *cells, *([""] * has_area)])  # no margin changes the area
    if not rows:
        return Markup()
    said = "Mean difference over the seeds that both have, ± its standard error where there are several."
    if comparable is not always:
        said += " Only methods that start from the same embedding are paired."
    if has_area:
        said += " Area: under the curve of new over base accuracy for all margins."
    heads = ["", *compared.values(), *(["area"] * has_area)]
    kinds = ["difference" if row[0] == WITHOUT_MARGIN else "ours" for row in rows]
    shown = table(heads, rows, "numbers stack roomy", kinds)
    return join([tag("h3", "Methods against each other"), shown, tag("p", said, class_="soft")])


def at_margin_zero(key: str) -> Measure:
    def value(result: Result) -> float | None:
        numbers: Mapping[str, Any] = result.margin_zero or {}
        return numbers.get(key)

    return value


def run_of(result: Result) -> tuple[object, ...]:
    """What two results must share to be paired: seed and draw, on the same split."""
    return result.seed, result.trial, result.split_checksum, tuple(result.classes_per_session)


def paired_cell(a: Sequence[Result], b: Sequence[Result], measure: Measure) -> Markup:
    """The mean difference of a measure of which more is better."""
    if any(measure(result) is None for result in (*a, *b)):
        return Markup("–")  # no new class was tested, or the file is older than the measure
    mean, error, n = paired_difference(a, b, measure)
    return join([signed(mean, is_better=mean > 0), *([f" ± {error:.2f}"] if n > 1 else [])])


def session_lines(results: Sequence[Result]) -> Markup:
    names = column_names(results)
    lines = table_lines(results)
    rows = [[heading(line), *(number_cell(line, i, column) for i, column in enumerate(names))] for line in lines]
    said = (
        "Accuracy in percent: the share of test images of all classes seen so far that are named right. PD: accuracy "
        "after the first session minus that after the last. Base, new and HM (their harmonic mean): after the last "
        "session. ±: standard deviation over the seeds."
    )
    if "margin" in names:
        said += " Margin: subtracted from the scores of base classes, in favour of new ones."
    on_cards = ["", *(f"session {name}" if name.isdigit() else name for name in names)]
    shown = table(["session", *names], rows, "numbers stack", [line.kind for line in lines], on_cards)
    return join([tag("h3", "Accuracy after every session"), shown, tag("p", said, class_="soft")])


def heading(line: Line) -> Markup:
    return join([line.label, tag("small", line.detail) if line.detail else Markup()])


def number_cell(line: Line, position: int, column: str) -> Markup:
    value, deviation = line.values[position], line.deviations[position]
    if line.kind == "difference" and value is not None:
        return signed(value, is_gain(column, value))
    return join([number(value), tag("small", f"±{deviation:.2f}") if deviation is not None else Markup()])


def base_and_new(groups: Groups, named: Labels) -> Markup:
    """Bars of base, new and harmonic mean, and their per-class forms where these differ or the paper gives them."""
    rows: list[list[str]] = []
    wanted = False
    for group, label in zip(groups, named.each, strict=True):
        sample, _ = mean_and_deviation([(r.base, r.new, r.harmonic_mean) for r in group])
        classes = [r.per_class for r in group]
        per_class, _ = mean_and_deviation([(c["base"], c["new"], c["harmonic_mean"]) for c in classes])
        bars: list[Cell] = [bar(value or 0.0, 100.0, number(value)) for value in sample]
        rows.append([label.text, *bars, *map(number, per_class)])
        wanted |= [*map(number, sample)] != [*map(number, per_class)]
        row = published_row(group[0])
        if row and row.new is not None:
            wanted = True
            theirs = map(number, (row.base, row.new, row.harmonic_mean))
            rows.append([f"paper, {row.augmentation}", "", "", "", *theirs])
    heads = ["", "base", "new", "HM"]
    per_class_heads = ["base per class", "new per class", "HM per class"] if wanted else []
    shown = [row[: len(heads) + len(per_class_heads)] for row in rows]
    return table([*heads, *per_class_heads], shown, "text stack roomy")
