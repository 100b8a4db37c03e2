from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fscil.labels import labels, repetitions
from fscil.report import figures
from fscil.report.html import report
from fscil.report.margin_curve import margin_figure, mean_curve
from fscil.results import Result

MakeResult = Callable[..., Result]

HEADING = "Base against new classes, for every margin"
# Two seeds whose scores differ in scale: (margin, base, new).
STEEP = [[-1.0, 80.0, 0.0], [0.0, 80.0, 40.0], [1.0, 40.0, 60.0], [2.0, 0.0, 60.0]]
FLAT = [[-9.0, 60.0, 0.0], [5.0, 60.0, 20.0], [6.0, 20.0, 40.0], [9.0, 0.0, 40.0]]


def before_margins(result: Result) -> Result:
    """The result as a file of version 2 holds it."""
    nothing = dict.fromkeys(
        ("margin", "margin_zero", "area", "base_among_base", "new_among_new", "best_harmonic_mean", "best_last",
         "base_to_new", "new_to_base")
    )  # fmt: skip
    return replace(result, curve=[], **nothing)


def axes_of(*results: Result) -> Axes:
    groups = repetitions(results)
    (axes,) = margin_figure(groups, labels(groups)).axes
    return axes


def dots(axes: Axes) -> list[Line2D]:
    return [line for line in axes.lines if line.get_marker() == "o"]


def named_lines(axes: Axes) -> dict[str, Line2D]:
    return {str(line.get_label()): line for line in axes.lines if not str(line.get_label()).startswith("_")}


def section_of(text: str) -> str:
    """What the report says about margins, as plain words."""
    _, _, rest = text.partition(f"<h3>{HEADING}</h3>")
    words = re.sub(r"<[^>]*>", " ", re.sub(r"<svg.*?</svg>", "", rest.partition("<h3>")[0], flags=re.DOTALL))
    return " ".join(html.unescape(words).split())


def test_the_curve_of_one_run_is_drawn_point_by_point(make_result: MakeResult) -> None:
    result = make_result()
    (line,) = named_lines(axes_of(result)).values()
    assert line.get_xydata().tolist() == [point[1:] for point in result.curve]
    assert line.get_label() == "limit"


def test_the_mean_curve_does_not_depend_on_the_scale_of_scores(make_result: MakeResult) -> None:
    base, new = mean_curve([make_result(seed=seed, curve=curve) for seed, curve in [(1, STEEP), (2, FLAT)]])
    scaled = [[9 * margin, *point] for margin, *point in FLAT]
    again = mean_curve([make_result(seed=seed, curve=curve) for seed, curve in [(1, STEEP), (2, scaled)]])
    assert np.array_equal(again, (base, new))
    assert (base[0], new[0], base[-1], new[-1]) == (70, 0, 0, 50)
    assert (np.diff(base) <= 0).all()
    assert (np.diff(new) >= 0).all()


def test_the_area_under_the_mean_curve_is_the_mean_area(make_result: MakeResult) -> None:
    group = [make_result((60, 20, 20), seed=seed) for seed in range(5)]
    base, new = mean_curve(group)
    assert -np.trapezoid(new, base) / 100 == pytest.approx(np.mean([r.area for r in group]), abs=0.1)


def test_every_seed_has_a_thin_line_of_its_own(make_result: MakeResult) -> None:
    axes = axes_of(make_result(seed=1), make_result(seed=2))
    thick = named_lines(axes)["limit"]
    thin = [line for line in axes.lines if line.get_color() == thick.get_color() and line not in (thick, *dots(axes))]
    assert len(thin) == 2
    assert all(line.get_linewidth() < thick.get_linewidth() for line in thin)


def test_dots_are_the_means_of_base_and_new(make_result: MakeResult) -> None:
    results = [make_result(seed=seed, base=base, new=new) for seed, base, new in [(1, 70.0, 20.0), (2, 74.0, 30.0)]]
    (dot,) = dots(axes_of(*results))
    assert dot.get_xydata().tolist() == [[72.0, 25.0]]
    assert dot.get_markerfacecolor() == dot.get_color()


def test_margin_zero_has_a_hollow_dot_beside_the_runs_own(make_result: MakeResult) -> None:
    result = make_result(margin=0.8)
    assert result.margin_zero
    found = {dot.get_markerfacecolor() == figures.PAPER: dot for dot in dots(axes_of(result))}
    assert found[True].get_xydata().tolist() == [[result.margin_zero["base"], result.margin_zero["new"]]]
    assert found[False].get_xydata().tolist() == [[result.base, result.new]]
    assert found[True].get_zorder() < found[False].get_zorder()


def test_hollow_dots_show_the_page_through(make_result: MakeResult) -> None:
    groups = repetitions([make_result(margin=0.8)])
    svg = figures.inline_svg(margin_figure(groups, labels(groups)), "")
    assert "var(--page)" in svg
    assert figures.PAPER not in svg


def test_methods_that_share_a_curve_are_both_seen(make_result: MakeResult) -> None:
    plain = make_result()
    both = named_lines(axes_of(plain, replace(plain, preset="with margin", margin=0.5)))
    assert both["limit"].get_linestyle() == "-"
    assert both["with margin"].get_linestyle() == "--"


def test_lines_of_equal_harmonic_mean_are_that(make_result: MakeResult) -> None:
    axes = axes_of(make_result(base_among_base=75.0, new_among_new=55.0))
    lines = [line.get_xydata() for line in axes.lines if line.get_color() == figures.INK]
    means = [2 * x * y / (x + y) for x, y in lines[0]], [2 * x * y / (x + y) for x, y in lines[1]]
    assert means == (pytest.approx([20] * 100), pytest.approx([40] * 100))
    assert [text.get_text() for text in axes.texts] == [f"HM {mean}" for mean in (20, 40, 60, 80)[: len(lines)]]
    assert axes.get_ylim()[0] == 0
    assert max(y for line in lines for _, y in line) <= axes.get_ylim()[1] + 1e-9


def test_results_without_a_curve_are_left_out_and_colours_stay(make_result: MakeResult) -> None:
    results = [before_margins(make_result(preset="old")), make_result(preset="young")]
    groups = repetitions(results)
    measured = [[result for result in group if result.curve] for group in groups]
    (axes,) = margin_figure(measured, labels(groups)).axes
    assert {name: line.get_color() for name, line in named_lines(axes).items()} == {"young": figures.colour(1)}
    words = section_of(report(results))
    assert "young" in words
    assert "old" not in words


def test_only_the_seeds_that_were_measured_count(make_result: MakeResult) -> None:
    results = [make_result(area=40.0), before_margins(make_result(seed=2)), make_result(seed=3, area=42.0)]
    assert "limit 2 seeds 41.00 ±1.41" in section_of(report(results))


@pytest.mark.parametrize("sizes", [(6, 2, 2), (3,)])
def test_nothing_is_said_where_nothing_was_measured(make_result: MakeResult, sizes: tuple[int, ...]) -> None:
    one = make_result(sizes)
    results = [one if len(sizes) == 1 else before_margins(one), replace(before_margins(one), preset="other")]
    text = report(results)
    assert HEADING not in text
    assert "area" not in re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", text, flags=re.DOTALL).lower()
    assert "limit − other" in text


def test_the_table_has_every_measure(make_result: MakeResult) -> None:
    result = make_result()
    words = section_of(report([result]))
    values: list[Any] = [
        result.area, result.base_among_base, result.new_among_new, result.best_harmonic_mean, result.best_last,
        result.base_to_new, result.new_to_base,
    ]  # fmt: skip
    row = " ".join(f"{value:.2f}" for value in values)
    heads = "area base among base new among new best HM best last session base to new new to base"
    assert f"{heads} limit seed 1 {row} In percent." in words
    assert "up and to the right is better" in words
    assert "the area under the curve is what a margin cannot change" in words
    assert "equal base" not in words  # there are no class means to compare with


def with_base_at_zero(make_result: MakeResult, method: str, seed: int, curve: list[list[float]], base: float) -> Result:
    made = make_result(seed=seed, method=method, preset=method, margin=0.3)
    assert made.margin_zero
    return replace(made, curve=curve, margin_zero={**made.margin_zero, "base": base})


def test_new_accuracy_is_read_off_at_the_base_accuracy_of_class_means_without_a_margin(make_result: MakeResult) -> None:
    means = [with_base_at_zero(make_result, "decoupled-cosine", seed, FLAT, base) for seed, base in [(1, 40), (2, 60)]]
    ours = [with_base_at_zero(make_result, "limit", seed, STEEP, 70) for seed in (1, 2, 3)]
    row, _, other = section_of(report([*ours, *means])).partition(" decoupled-cosine 2 seeds, margin 0.3 ")
    assert row.endswith(" 55.00 ±7.07")  # 60 and 50, seed by seed; class means have no third
    assert " 25.00 ±7.07 In percent." in other  # 30 and 20
    assert re.search(r"limit seed 3, margin 0.3 [\d. ]*– decoupled-cosine", section_of(report([ours[2], *means])))


def test_new_accuracy_out_of_reach_in_one_seed_has_no_mean(make_result: MakeResult) -> None:
    means = [with_base_at_zero(make_result, "decoupled-cosine", seed, STEEP, base) for seed, base in [(1, 40), (2, 70)]]
    ours = [with_base_at_zero(make_result, "limit", seed, FLAT, 50) for seed in (1, 2)]  # ends at 60
    row, _, _ = section_of(report([*ours, *means])).partition(" decoupled-cosine 2 seeds")
    assert row.endswith(" –")


def test_the_margin_is_named_where_there_is_one(make_result: MakeResult) -> None:
    plain, moved = make_result(preset="plain"), make_result(preset="moved", margin=0.25)
    words = section_of(report([plain, moved]))
    assert "plain seed 1 " in words
    assert "moved seed 1, margin 0.25 " in words
    assert "Hollow dots: margin 0." in words
    assert "Hollow" not in section_of(report([plain]))
    several = [make_result(seed=seed, margin=margin) for seed, margin in [(1, 0.5), (2, 0.1), (3, 0.3)]]
    assert "limit 3 seeds, margin 0.1 to 0.5 " in section_of(report(several))


def differences_of(*results: Result) -> str:
    words = re.sub(r"<[^>]*>", " ", report(results).partition("<h3>Methods against each other</h3>")[2])
    return " ".join(words.partition("Mean difference")[0].split())


def test_methods_are_also_compared_by_area(make_result: MakeResult) -> None:
    a = [make_result(preset="a", seed=s, area=v) for s, v in [(1, 31.0), (2, 33.0)]]
    b = [make_result(preset="b", seed=s, area=30.0) for s in (1, 2)]
    words = differences_of(*a, *b)
    assert words.startswith("last session average HM area a − b")
    assert words.endswith("+2.00 ± 1.00")
    assert differences_of(*a, *map(before_margins, b)).endswith(" –")


def test_methods_with_a_margin_are_also_compared_without_it(make_result: MakeResult) -> None:
    def of(preset: str, margin: float, zero: float) -> Result:
        made = make_result(preset=preset, margin=margin, last=50.0, average=60.0, harmonic_mean=40.0, area=30.0)
        at_zero = {"last": zero, "average": zero + 1, "harmonic_mean": zero + 2 * (margin > 0)}
        return replace(made, margin_zero={**(made.margin_zero or {}), **at_zero})

    words = differences_of(of("a", 0.5, 48.0), of("b", 0.0, 45.0))
    assert words.endswith("a − b 1 seed +0.00 +0.00 +0.00 +0.00 both with margin 0 +3.00 +3.00 +5.00")
    assert "margin" not in differences_of(of("a", 0.0, 48.0), of("b", 0.0, 45.0))
    assert differences_of(of("a", 0.5, 48.0), before_margins(of("b", 0.0, 45.0))).endswith("both with margin 0 – – –")


def test_methods_on_different_embeddings_are_not_compared(make_result: MakeResult) -> None:
    means = with_base_at_zero(make_result, "decoupled-cosine", 1, FLAT, 40)
    ours, other = (with_base_at_zero(make_result, name, 1, STEEP, 70) for name in ("limit", "limit-plus"))
    alike = report([means, ours, other], lambda a, b: "limit-plus" not in (a.preset, b.preset))
    words = re.sub(r"<[^>]*>", " ", alike.partition("<h3>Methods against each other</h3>")[2])
    assert "decoupled-cosine − limit " in words
    assert "decoupled-cosine − limit-plus" not in words
    assert "Only methods that start from the same embedding are paired." in words
    row, _, last = section_of(alike).partition(" limit-plus seed 1, margin 0.3 ")
    assert row.endswith(" 60.00")
    assert re.match(r"[\d. ]*– In percent\.", last)
