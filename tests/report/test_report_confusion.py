from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fscil.report.confusion import FEW, class_counts, confusion_figure, most_confused
from fscil.results import Result

MakeResult = Callable[..., Result]


def test_rows_are_shares_and_lines_separate_the_sessions(make_result: MakeResult) -> None:
    result = make_result((2, 1, 1), confusion=[[3, 1, 0, 0], [0, 4, 0, 0], [2, 0, 2, 0], [0, 0, 0, 0]])
    axes = confusion_figure([result], "limit").axes[0]
    shares = np.asarray(axes.images[0].get_array())
    assert shares.tolist() == [[0.75, 0.25, 0, 0], [0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 0, 0, 0]]
    borders = [float(line.get_ydata()[0]) for line in axes.lines if line.get_xdata()[0] != line.get_xdata()[1]]
    assert borders == [1.5, 2.5]


def test_runs_of_one_method_are_added_up(make_result: MakeResult) -> None:
    one = make_result((2,), confusion=[[4, 0], [0, 4]])
    other = make_result((2,), seed=2, confusion=[[0, 4], [0, 4]])
    axes = confusion_figure([one, other], "limit").axes[0]
    assert np.asarray(axes.images[0].get_array()).tolist() == [[0.5, 0.5], [0, 1]]


def test_few_classes_are_named_and_counted(make_result: MakeResult) -> None:
    names = ["cat", "a class with a very long\nname"]
    axes = confusion_figure([make_result((1, 1), class_names=names, confusion=[[3, 1], [0, 4]])], "limit").axes[0]
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [label.get_text() for label in labels] == ["cat", "a class with a…"]
    written = {text.get_position(): text.get_text() for text in axes.texts}
    assert written == {(0, 0): "3", (1, 0): "1", (1, 1): "4"}  # (taken for, true)


def test_many_classes_are_named_by_session(make_result: MakeResult) -> None:
    axes = confusion_figure([make_result((FEW, 1))], "limit").axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["base", "1"]
    assert not axes.texts
    axes = confusion_figure([make_result((4, *[1] * 40))], "limit").axes[0]
    assert 5 <= len(axes.get_xticks()) <= 12


def test_every_class_has_its_count_over_all_runs(make_result: MakeResult) -> None:
    runs = [make_result((2,), seed=s, confusion=[[3, 1], [0, 0]]) for s in (1, 2)]
    assert class_counts(runs) == [(6, 8), (0, 0)]


def test_the_commonest_mistakes_come_first(make_result: MakeResult) -> None:
    names = ["cat", "dog", "fox"]
    result = make_result((3,), class_names=names, confusion=[[5, 3, 2], [0, 9, 1], [0, 0, 10]])
    assert most_confused([result]) == [("cat", "dog", 3, 30.0), ("cat", "fox", 2, 20.0), ("dog", "fox", 1, 10.0)]
    assert most_confused([result], count=1) == [("cat", "dog", 3, 30.0)]


def test_a_flawless_run_has_no_mistakes_to_list(make_result: MakeResult) -> None:
    assert most_confused([make_result((2,), class_names=["a", "b"], confusion=[[5, 0], [0, 5]])]) == []
