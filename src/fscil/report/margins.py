"""The report's section on margins: what a margin trades, and what it cannot change."""

from __future__ import annotations

from collections.abc import Sequence

from fscil.labels import Labels, runs_in_words
from fscil.margins import new_at_base_accuracy
from fscil.report.figures import inline_svg
from fscil.report.margin_curve import margin_figure
from fscil.report.markup import Markup, join, table, tag
from fscil.report.summary import Comparable, run_of
from fscil.results import Result
from fscil.table_lines import Value, mean_and_deviation, number

Groups = list[list[Result]]

CLASS_MEANS = "decoupled-cosine"  # the method that is the yardstick
MEASURES = {
    "area": "area",
    "base_among_base": "base among base",
    "new_among_new": "new among new",
    "best_harmonic_mean": "best HM",
    "best_last": "best last session",
    "base_to_new": "base to new",
    "new_to_base": "new to base",
}
READING = (
    "A margin, subtracted from the scores of base classes, trades accuracy on base classes for accuracy on new ones. "
    "Each curve shows how a method does with every possible margin: up and to the right is better. A margin only moves "
    "a method along its curve; the area under the curve is what a margin cannot change."
)
MEANINGS = (
    "In percent. Area: under the curve; a flawless method has 100. Base among base, new among new: the ends of the "
    "curve, accuracy with only base (only new) classes to choose from. Best HM, best last session: the best on the "
    "curve, each at a margin of its own that only the test images tell; a bound, not a result. Base to new, new to "
    "base: test images of base (new) classes that the runs gave a new (base) class."
)


def margins(groups: Groups, named: Labels, comparable: Comparable) -> Markup:
    """Picture and table of the results that have a curve; nothing if none has."""
    groups = [[result for result in group if result.curve] for group in groups]
    if not any(groups):
        return Markup()
    caption = "Dots: the runs, with margin 0."
    if any(result.margin for group in groups for result in group):
        caption = "Filled dots: the runs, with their own margin. Hollow dots: margin 0."
    if any(len(group) > 1 for group in groups):
        caption += " Thick: mean over the seeds. Thin: single seeds."
    svg = inline_svg(margin_figure(groups, named), "accuracy on new over base classes for every margin")
    return join(
        [
            tag("h3", "Base against new classes, for every margin"),
            tag(
                "figure",
                tag("p", READING),
                Markup(svg),
                tag("figcaption", f"{caption} Grey: equal harmonic mean (HM)."),
            ),
            measures_table(groups, named, comparable),
        ]
    )


def measures_table(groups: Groups, named: Labels, comparable: Comparable) -> Markup:
    """One row per method: mean and standard deviation over its seeds."""
    heads, said = [*MEASURES.values()], MEANINGS
    class_means = [group for group in groups if group and group[0].method == CLASS_MEANS]
    if class_means and sum(map(bool, groups)) > 1:
        heads.append("new at equal base")
        names = ", ".join(named.each[groups.index(group)].text for group in class_means)
        said += (
            f" New at equal base: accuracy on new classes with the margin that gives the accuracy on base classes that "
            f"class means ({names}) on the same embedding have in the same seed with margin 0; – if that is out of "
            "reach, or if there are none."
        )
    rows = []
    for group, label in zip(groups, named.each, strict=True):
        if group:
            yardstick = next((means for means in class_means if comparable(group[0], means[0])), [])
            columns = [[getattr(result, key) for result in group] for key in MEASURES]
            cells = [*map(measure_cell, columns), measure_cell(new_at_equal_base(group, yardstick))]
            rows.append([join([label.text, tag("small", runs_and_margin(group))]), *cells[: len(heads)]])
    return join([table(["", *heads], rows, "numbers stack roomy"), tag("p", said, class_="soft")])


def new_at_equal_base(group: Sequence[Result], yardstick: Sequence[Result]) -> list[Value]:
    """Of every run that the yardstick shares: with the margin that gives the yardstick's base accuracy at margin 0."""
    bases = {run_of(result): result.margin_zero["base"] for result in yardstick if result.margin_zero}
    pairs = [(result.curve, bases.get(run_of(result))) for result in group]
    return [new_at_base_accuracy(curve, base) for curve, base in pairs if base is not None]


def measure_cell(values: Sequence[Value]) -> Markup:
    """Mean and standard deviation; a run without a value would bias the mean of the others, so that there is none."""
    if not values or None in values:
        return Markup("–")
    (mean,), (deviation,) = mean_and_deviation([[value] for value in values])
    return join([number(mean), tag("small", f"±{deviation:.2f}") if deviation is not None else Markup()])


def runs_and_margin(group: Sequence[Result]) -> str:
    margins = sorted({result.margin or 0.0 for result in group})
    if margins == [0.0]:
        return runs_in_words(group)
    ends = dict.fromkeys((margins[0], margins[-1]))  # one, unless every run chose its own
    return f"{runs_in_words(group)}, margin {' to '.join(f'{margin:g}' for margin in ends)}"
