"""A grid of runs, rows x seeds: what `compare`, `reproduce` and tuning run and tabulate."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Column, Table

from fscil import distributed, runs, side_by_side
from fscil.config import Config, read_config, resolve
from fscil.errors import UserError
from fscil.results import Measure, Result, measured_by, paired_difference
from fscil.tables import at_natural_width

State = Literal["finished", "to resume", "to run"]
Groups = Mapping[str, Sequence[Result]]  # row -> its results, one for each seed

MEASURES = {
    "last": "last", "average": "average", "base": "base", "new": "new", "harmonic_mean": "HM", "area": "area",
}  # fmt: skip
COMPARED = ("last", "harmonic_mean", "area")  # differences are given for these
LONGEST_NAME = 120  # of a folder; file systems allow 255 bytes


@dataclass(frozen=True)
class Row:
    """One line of a grid: a preset with some settings, to be run with every seed."""

    name: str
    preset: str
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One run of a grid."""

    row: str
    config: Config
    folder: str  # inside the grid's folder


def build_jobs(benchmark: str, rows: Iterable[Row], seeds: Iterable[int], prefix: str) -> list[Job]:
    """All runs of a grid, seed by seed, so that an interrupted grid already has rows to compare.

    Every configuration is resolved here: a mistake in the last row is refused before the first one trains.
    """
    rows = list(rows)
    jobs = []
    for seed in seeds:
        for row in rows:
            config = resolve(row.preset, benchmark, row.settings, seed)
            jobs.append(Job(row.name, config, folder_name(prefix, row.name, config)))
    folders = [job.folder for job in jobs]
    if twice := [job for job in jobs if folders.count(job.folder) > 1]:
        raise UserError(f"two rows or seeds are the same ({describe(twice[0])}); leave one of them out")
    return jobs


def folder_name(prefix: str, row: str, config: Config) -> str:
    name = re.sub(r"[^\w.,+-]+", "_", f"{prefix}-{row}".replace("=", "-"))
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}-{config.hash.partition('-')[0]}"
    return f"{name}-seed{config.seed}"


def describe(job: Job) -> str:
    return f"{job.row} on {job.config.benchmark}, seed {job.config.seed}"


def state_of(job: Job, folder: Path) -> State:
    """What is left to do for a run; a folder that holds a different run is refused."""
    if not os.path.lexists(folder / "config.toml"):
        return "to run"
    if read_config(folder / "config.toml").hash != job.config.hash:
        raise UserError(f"{folder} holds a run with other settings; choose another --out or delete that folder")
    return "finished" if os.path.lexists(folder / "result.json") else "to resume"


def run_grid(jobs: Sequence[Job], environment: runs.RunEnvironment, console: Console) -> dict[str, list[Result]]:
    """The results of all runs by row; finished runs are read, interrupted ones are resumed."""
    folders = [environment.folder / job.folder for job in jobs]
    states = distributed.broadcast(lambda: [state_of(*pair) for pair in zip(jobs, folders, strict=True)])
    say(console, *overview(jobs, states))
    to_run = {job.row: job.config for job, state in zip(jobs, states, strict=True) if state == "to run"}
    for config in to_run.values():  # one of each row, before anything trains
        runs.check(config, environment)
    if environment.at_once > 1:
        runs.read_dataset.cache_clear()  # the runs read it themselves
    groups: dict[str, list[Result]] = {job.row: [] for job in jobs}
    if environment.at_once > 1 and set(states) != {"finished"}:
        run_side_by_side(jobs, folders, states, environment, console)
        states = ["finished"] * len(jobs)
    seconds: dict[str, list[float]] = defaultdict(list)  # by row: how long the runs started here took
    for i, (job, folder, state) in enumerate(zip(jobs, folders, states, strict=True)):
        if state != "finished":
            left = [other.row for other, its in zip(jobs[i:], states[i:], strict=True) if its != "finished"]
            say(console, f"{i + 1} of {len(jobs)}: {describe(job)}{time_left(left, seconds)}")
        started = time.perf_counter()
        groups[job.row].append(runs.finish(job.config, replace(environment, folder=folder), console))
        if state == "to run":
            seconds[job.row].append(time.perf_counter() - started)
    return groups


def run_side_by_side(
    jobs: Sequence[Job],
    folders: Sequence[Path],
    states: Sequence[State],
    environment: runs.RunEnvironment,
    console: Console,
) -> None:
    """Finish what is not finished, several runs at once. Lines say which run began, which ended and what is left."""
    left: dict[str, Job] = {}
    children = []
    for job, folder, state in zip(jobs, folders, states, strict=True):
        if state != "finished":
            left[job.folder] = job
            own = replace(environment, folder=folder, at_once=1)
            children.append(side_by_side.Child(job.config, own, resumes=state == "to resume"))
    at_once = min(environment.at_once, len(children))
    seconds: dict[str, list[float]] = defaultdict(list)

    def began(child: side_by_side.Child) -> None:
        say(console, f"began: {describe(left[child.environment.folder.name])}")

    def ended(child: side_by_side.Child) -> None:
        job = left.pop(child.environment.folder.name)
        if not child.resumes:  # of runs side by side, so many are computed in the time of one
            seconds[job.row].append(child.seconds / at_once)
        rest = time_left([other.row for other in left.values()], seconds) if left else ""
        say(console, f"ended: {describe(job)}, after {child.seconds:.0f} s; {len(left)} of {len(jobs)} left{rest}")

    side_by_side.compute_all(children, at_once, began, ended)


def say(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def overview(jobs: Sequence[Job], states: Sequence[State]) -> list[str]:
    """How many runs are finished, to be resumed and to be run, and which."""
    by_state: dict[State, list[Job]] = {"finished": [], "to resume": [], "to run": []}
    for job, state in zip(jobs, states, strict=True):
        by_state[state].append(job)
    counts = ", ".join(f"{len(some)} {state}" for state, some in by_state.items() if some)
    lines = [f"{len(jobs)} {'run' if len(jobs) == 1 else 'runs'}: {counts}"]
    for state, some in by_state.items():
        seeds: dict[str, list[str]] = {}
        for job in some:
            seeds.setdefault(job.row, []).append(str(job.config.seed))
        if some and len(some) < len(jobs):  # otherwise the first line says it all
            lines.append(f"  {state:9}  " + "; ".join(f"{row}: seed {' '.join(its)}" for row, its in seeds.items()))
    return lines


def time_left(rows: Sequence[str], seconds: Mapping[str, Sequence[float]]) -> str:
    """An estimate for the runs of these rows, from runs of the same row if there are any, else from all."""
    known = [value for values in seconds.values() for value in values]
    if not known:
        return ""
    left = sum(statistics.fmean(seconds[row] if seconds.get(row) else known) for row in rows)
    if left < 90:
        return f" (about {max(1, round(left))} s left for all)"
    minutes = round(left / 60)
    return f" (about {minutes} min left for all)" if minutes < 90 else f" (about {left / 3600:.1f} h left for all)"


def difference(a: Sequence[Result], b: Sequence[Result], key: str | Measure) -> str:
    """The mean of a's value minus b's in pairs of the same seed, ± its standard error; a dash without any pair."""
    if not has_pairs(a, b, key):
        return "–"
    mean, error, n = paired_difference(a, b, key)
    return f"{mean:+.2f} ± {error:.2f}" if n > 1 else f"{mean:+.2f}"


def has_pairs(a: Sequence[Result], b: Sequence[Result], key: str | Measure) -> bool:
    """Whether some seed measured the value on both sides; a stream without new classes has no harmonic mean."""
    measure = measured_by(key)
    measured = [{(r.seed, r.trial) for r in results if measure(r) is not None} for results in (a, b)]
    return bool(measured[0] & measured[1])


def mean_and_deviation(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    return f"{statistics.fmean(known):.2f}" + (f" ± {statistics.stdev(known):.2f}" if len(known) > 1 else "")


def cells(groups: Groups) -> list[list[str]]:
    """The grid as text, header first: mean ± standard deviation over the seeds, and differences to the first row."""
    first, *others = groups
    against = [f"{MEASURES[key]} - {first}" for key in COMPARED] if others else []
    lines = [["row", "seeds", *MEASURES.values(), *against]]
    for name, results in groups.items():
        values = [mean_and_deviation([getattr(r, key) for r in results]) for key in MEASURES]
        gaps = [difference(results, groups[first], key) for key in COMPARED] if name != first else ["–"] * len(against)
        lines.append([name, str(len(results)), *values, *(gaps if others else [])])
    return lines


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells, header first, as a Markdown table: the first column to the left, numbers to the right."""
    header, *body = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "".join("| " + " | ".join(line) + " |\n" for line in (header, rule, *body))


def terminal(lines: Sequence[Sequence[str]]) -> Table:
    """The same for the terminal; to be printed with crop=False."""
    header, *body = lines
    columns = [Column(name, justify="left" if i == 0 else "right", no_wrap=True) for i, name in enumerate(header)]
    table = Table(*columns, box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    for line in body:
        table.add_row(*line)
    return at_natural_width(table)
