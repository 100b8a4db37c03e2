from __future__ import annotations

import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from fscil import paper
from fscil.errors import UserError
from fscil.report.curve import curve_figure, forgetting_figure, write_curve
from fscil.report.figures import inline_svg
from fscil.results import Result

MakeResult = Callable[..., Result]
CIFAR = (60, *[5] * 8)


def test_the_picture_is_a_png_of_readable_size(tmp_path: Path, make_result: MakeResult) -> None:
    path = write_curve([make_result(), make_result(seed=2)], tmp_path / "figures" / "curve.png")
    with Image.open(io.BytesIO(path.read_bytes())) as image:
        assert image.format == "PNG"
        assert min(image.size) > 300


def test_a_line_is_the_mean_over_the_seeds_with_a_band_around_it(make_result: MakeResult) -> None:
    results = [make_result(seed=s, accuracy=[a, 60.0, 50.0]) for s, a in [(1, 70.0), (2, 74.0)]]
    (axes,) = curve_figure(results).axes
    (line,) = axes.lines
    assert list(line.get_ydata()) == [72.0, 60.0, 50.0]
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx(72 + np.std([70, 74], ddof=1))


def test_the_papers_row_is_dashed_and_drawn_once_per_method(make_result: MakeResult) -> None:
    results = [make_result(CIFAR, benchmark="cifar100", preset=preset) for preset in ("limit", "limit-paper")]
    (axes,) = curve_figure(results).axes
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [list(line.get_ydata()) for line in dashed] == [paper.row("cifar100", "limit")]
    assert [line.get_label() for line in axes.lines] == ["limit", "paper: limit, autoaug", "limit-paper"]


def test_the_best_line_ends_with_its_lead(make_result: MakeResult) -> None:
    results = [
        make_result(preset=name, accuracy=[75.0, 60.0, last]) for name, last in (("a", 40.0), ("b", 52.5), ("c", 50.25))
    ]
    assert leads(results) == ["+2.25"]
    assert not curve_figure(results[:1]).axes[0].texts
    assert not curve_figure([*results, make_result((6, 2), preset="d")]).axes[0].texts  # other sessions


def leads(results: list[Result]) -> list[str]:
    return [text.get_text() for text in curve_figure(results).axes[0].texts]


def test_a_method_is_ahead_of_other_methods_not_of_itself_or_of_the_upper_bound(make_result: MakeResult) -> None:
    lasts = (("limit", "limit", 52.5), ("limit", "limit-paper", 52.0), ("cec", "cec", 50.0), ("joint", "joint", 60.0))
    results = [make_result(method=m, preset=p, accuracy=[75.0, 60.0, last]) for m, p, last in lasts]
    assert leads(results) == ["+2.50"]
    assert leads(results[:2]) == ["+0.50"]
    assert leads([results[0], results[3]]) == ["+7.50"]


def test_many_methods_can_be_told_apart_and_leave_room_for_the_picture(make_result: MakeResult) -> None:
    few, many = (curve_figure([make_result(preset=f"method {i}") for i in range(n)]) for n in (10, 20))
    looks = [(line.get_color(), line.get_marker()) for line in many.axes[0].lines]
    assert len(set(looks)) == len(looks) == 20
    for figure in (few, many):
        figure.draw_without_rendering()
    heights = [figure.axes[0].get_window_extent().height for figure in (few, many)]
    assert heights[1] > 0.9 * heights[0]


def test_many_lines_have_their_names_at_their_ends_and_no_paper_beside_them(make_result: MakeResult) -> None:
    last = {"limit": 52.4, "teen": 52.3, "cec": 52.2, "icarl": 52.1, "eeil": 52.0, "topic": 40.0, "finetune": 2.0}
    results = [
        make_result(method=name, preset=name, benchmark="cifar100", accuracy=[75.0, 60.0, value])
        for name, value in last.items()
    ]
    figure = curve_figure(results)
    (axes,) = figure.axes
    figure.draw_without_rendering()
    assert [text.get_text() for text in axes.texts] == ["limit  +0.10", *list(last)[1:]]  # from top to bottom
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without the line that leads there
    assert all(above.y0 >= below.y1 for above, below in pairwise(boxes))
    assert all(box.y0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert len(axes.lines) == len(last)
    assert not figure.legends


def test_namesakes_can_be_told_apart(make_result: MakeResult) -> None:
    (axes,) = curve_figure([make_result(augmentation="basic"), make_result(augmentation="autoaug")]).axes
    assert len({line.get_label() for line in axes.lines}) == 2


@pytest.mark.parametrize(("lowest", "bottom", "says"), [(50.0, 40, True), (20.0, 0, False)])
def test_an_axis_that_does_not_start_at_zero_says_so(
    make_result: MakeResult, lowest: float, bottom: int, says: bool
) -> None:
    (axes,) = curve_figure([make_result(accuracy=[70.0, 60.0, lowest])]).axes
    assert axes.get_ylim()[0] == bottom
    assert ("the axis starts at 40" in axes.get_ylabel()) == says


def test_the_axis_of_forgetting_has_its_zero(make_result: MakeResult) -> None:
    low, high = forgetting_figure([make_result(forgetting=[20.0, 21.0, 22.0])]).axes[0].get_ylim()
    assert low <= 0 <= high


def test_sessions_are_named_with_the_classes_seen(make_result: MakeResult) -> None:
    (axes,) = curve_figure([make_result((6, 2, 2))]).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0\n6", "1\n8", "2\n10"]


def test_forgetting_is_drawn(make_result: MakeResult) -> None:
    result = make_result()
    (axes,) = forgetting_figure([result]).axes
    assert list(axes.lines[0].get_ydata()) == result.forgetting


def test_benchmarks_of_different_length_and_one_session_can_be_drawn(make_result: MakeResult) -> None:
    (axes,) = curve_figure([make_result((3,)), make_result((6, 2, 2), preset="other")]).axes
    assert [len(line.get_ydata()) for line in axes.lines] == [1, 3]


def test_inline_svg_takes_the_pages_colours_and_keeps_names_as_text(make_result: MakeResult) -> None:
    svg = inline_svg(curve_figure([make_result(preset="a$b$<i>&")]), 'what "it" shows')
    assert svg.startswith("<svg")
    assert "currentColor" in svg
    assert "a$b$&lt;i&gt;&amp;" in svg
    assert "<metadata" not in svg
    assert 'aria-label="what &quot;it&quot; shows"' in svg


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no results"):
        write_curve([], tmp_path / "curve.png")
