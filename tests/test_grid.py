from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

from fscil import grid, runs
from fscil.config import Config
from fscil.errors import UserError
from fscil.grid import Row
from fscil.results import Result

pytestmark = pytest.mark.usefixtures("undrawn")

ROWS = [Row("plain", "decoupled-cosine"), Row("power=0.5", "decoupled-cosine", ("power=0.5",))]


@pytest.fixture
def environment(tmp_path: Path) -> runs.RunEnvironment:
    return runs.RunEnvironment(torch.device("cpu"), tmp_path / "out")


def printed(jobs: list[grid.Job], environment: runs.RunEnvironment) -> tuple[dict[str, list[Result]], str]:
    console = Console(file=StringIO(), width=40)
    groups = grid.run_grid(jobs, environment, console)
    return groups, console.file.getvalue()  # type: ignore[attr-defined]


def test_rows_times_seeds_in_the_order_given(tiny_dataset: str, environment: runs.RunEnvironment) -> None:
    jobs = grid.build_jobs(tiny_dataset, ROWS, [3, 1], prefix="t")
    groups, said = printed(jobs, environment)
    assert {row: [r.seed for r in results] for row, results in groups.items()} == {"plain": [3, 1], "power=0.5": [3, 1]}
    assert (environment.folder / "t-power-0.5-seed1" / "result.json").is_file()
    lines = [line for line in said.splitlines() if " of 4: " in line]
    assert lines[0] == "1 of 4: plain on tiny, seed 3"
    assert lines[3].startswith("4 of 4: power=0.5 on tiny, seed 1 (about ")


def test_what_is_finished_is_read_and_what_was_interrupted_goes_on(
    tiny_dataset: str, environment: runs.RunEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = grid.build_jobs(tiny_dataset, ROWS, [1, 2], prefix="t")
    whole, _ = printed(jobs, environment)
    (environment.folder / jobs[2].folder / "result.json").unlink()
    resumed = []
    execute = runs.execute

    def watched(config: Config, where: runs.RunEnvironment, console: Console) -> Result:
        resumed.append(where.folder.name)
        return execute(config, where, console)

    monkeypatch.setattr(runs, "execute", watched)
    again, said = printed([*jobs, *grid.build_jobs(tiny_dataset, ROWS[:1], [3], prefix="t")], environment)
    assert resumed == [jobs[2].folder, "t-plain-seed3"]
    assert [r.accuracy for r in again["plain"][:2]] == [r.accuracy for r in whole["plain"]]
    assert said.splitlines()[:4] == [
        "5 runs: 3 finished, 1 to resume, 1 to run",
        "  finished   plain: seed 1; power=0.5: seed 1 2",
        "  to resume  plain: seed 2",
        "  to run     plain: seed 3",
    ]
    assert "3 of 5: plain on tiny, seed 2" in said
    assert "1 of 5" not in said


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (Row("typo", "decoupled-cosine", ("powr=0.5",)), "did you mean 'power'"),
        (Row("wrong", "decoupled-cosine", ("power=half",)), "power=half is not a float"),
        (Row("unknown", "decoupled-cosin"), "did you mean 'decoupled-cosine'"),
        (Row("plain", "finetune"), "two rows or seeds are the same \\(plain on tiny, seed 1\\)"),
    ],
)
def test_a_mistake_in_the_last_row_is_refused_before_the_first_one_trains(
    tiny_dataset: str, last: Row, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        grid.build_jobs(tiny_dataset, [*ROWS, last], [1], prefix="t")


def test_what_a_later_row_lacks_is_told_before_the_first_one_trains(
    tiny_dataset: str, environment: runs.RunEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a package, which only methods know that they need."""
    monkeypatch.setitem(sys.modules, "ot", None)
    monkeypatch.setattr(runs, "execute", lambda *_: pytest.fail("it ran"))
    jobs = grid.build_jobs(tiny_dataset, [*ROWS, Row("emd", "decoupled-deepemd", ("solver=exact",))], [1], prefix="t")
    with pytest.raises(UserError, match=r'need POT; pip install "fscil\[emd\]"'):
        grid.run_grid(jobs, environment, Console(quiet=True))


def test_a_folder_of_another_run_is_refused_before_the_first_one_trains(
    tiny_dataset: str, environment: runs.RunEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = grid.build_jobs(tiny_dataset, ROWS, [1], prefix="t")
    printed(jobs[1:], environment)
    other = grid.build_jobs(tiny_dataset, [replace(row, settings=("power=0.7",)) for row in ROWS], [1], prefix="t")
    monkeypatch.setattr(runs, "execute", lambda *_: pytest.fail("it ran"))
    with pytest.raises(UserError, match=r"t-power-0.5-seed1 holds a run with other settings"):
        grid.run_grid(other, environment, Console(quiet=True))


def test_folder_names_hold_any_settings(tiny_dataset: str) -> None:
    long = " ".join(f"power={n}" for n in range(40))
    rows = [Row(f"path=/a b/c {end}", "finetune") for end in "xy"] + [
        Row(long, "finetune", (f"lr={lr}",)) for lr in (0.1,)
    ]
    names = [job.folder for job in grid.build_jobs(tiny_dataset, rows, [1], prefix="t")]
    assert names[:2] == ["t-path-_a_b_c_x-seed1", "t-path-_a_b_c_y-seed1"]
    assert len(names[2]) < 160


@pytest.mark.parametrize(
    ("rows", "seconds", "words"),
    [
        (["a", "b"], {}, ""),
        (["a"], {"a": [0.01]}, " (about 1 s left for all)"),
        (["a", "b"], {"a": [10.0, 20.0]}, " (about 30 s left for all)"),  # b is taken for an average run
        (["a", "b", "b"], {"a": [60.0], "b": [120.0]}, " (about 5 min left for all)"),
        (["a"] * 10, {"a": [3600.0]}, " (about 10.0 h left for all)"),
    ],
)
def test_the_time_left_comes_from_runs_of_the_same_row(
    rows: list[str], seconds: dict[str, list[float]], words: str
) -> None:
    assert grid.time_left(rows, seconds) == words


def test_tables_give_means_deviations_and_paired_differences(make_result: Callable[..., Result]) -> None:
    groups = {
        "a": [make_result(seed=s, last=last, harmonic_mean=None, area=33.0) for s, last in ((1, 10.0), (2, 20.0))],
        "b|c": [make_result(seed=s, last=last, area=33.0 + s) for s, last in ((2, 24.0), (1, 12.0), (3, 90.0))],
        "d": [make_result(seed=9, last=5.0)],
    }
    header, a, b, d = grid.cells(groups)
    assert header == ["row", "seeds", "last", "average", "base", "new", "HM", "area", "last - a", "HM - a", "area - a"]
    assert (a[:3], a[6:]) == (["a", "2", "15.00 ± 7.07"], ["–", "33.00 ± 0.00", "–", "–", "–"])
    gaps = ["+3.00 ± 1.00", "–", "+1.50 ± 0.50"]  # seeds 1 and 2, in pairs
    assert (b[:3], b[8:]) == (["b|c", "3", "42.00 ± 42.00"], gaps)
    assert (d[:3], d[8:]) == (["d", "1", "5.00"], ["–", "–", "–"])  # no seed in common
    assert grid.markdown([header, b]).splitlines()[2].startswith("| b\\|c | 3 | 42.00 ± 42.00 |")
    out = StringIO()
    Console(file=out, width=20).print(grid.terminal([header, a, b, d]), crop=False)
    assert "+3.00 ± 1.00" in out.getvalue()  # however narrow the terminal is
