"""Progress of a stage: a bar on a terminal, a line per minute in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

ENOUGH_WORK = 5.0  # seconds; an estimate from less would mostly measure start-up
BETWEEN_LINES = 60.0


class StageProgress(Protocol):
    def update(self, done: int, loss: float | None = None) -> None:
        """Report how many segments are done, including those of earlier runs, and the loss of the last one."""


@contextmanager
def stage_progress(
    console: Console,
    name: str,
    total: int,
    completed: int = 0,
    spent: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[StageProgress]:
    """Show the progress of a stage of `total` segments, `completed` of which took `spent` seconds before a resumption.

    A terminal gets a bar. Anything else gets lines: an estimate as soon as there is one (at once if an earlier run
    provides it), one per minute, and one at the end; a stage of less than a minute gets none.
    """
    if console.is_terminal and not console.is_dumb_terminal:
        columns = (
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        with Progress(*columns, console=console, transient=True) as bars:
            yield Bar(bars, bars.add_task(name, total=total, completed=completed), name)
        return
    lines = Lines(console, name, total, completed, spent, clock)
    lines.begin()
    yield lines
    lines.end()


@dataclass
class Bar:
    bars: Progress
    task: TaskID
    name: str

    def update(self, done: int, loss: float | None = None) -> None:
        described = self.name if loss is None else f"{self.name} (loss {loss:.3f})"
        self.bars.update(self.task, completed=done, description=described)


@dataclass
class Lines:
    console: Console
    name: str
    total: int
    completed: int
    spent: float
    clock: Callable[[], float]
    loss: float | None = None
    announced: bool = False
    started: float = field(init=False)
    last_line: float = field(init=False)
    first_done: tuple[int, float] | None = None  # how many segments were done at the first update, and when

    def __post_init__(self) -> None:
        self.started = self.last_line = self.clock()

    def begin(self) -> None:
        if 0 < self.completed < self.total and self.spent >= ENOUGH_WORK:
            self._announce(self.completed, self.spent / self.completed)

    def update(self, done: int, loss: float | None = None) -> None:
        self.loss = loss
        now = self.clock()
        if done >= self.total or done <= self.completed:
            return  # end() prints the last line
        pace = self._seconds_per_segment(done, now)
        if not self.announced:
            # the first segment includes start-up, such as capturing a step, so it says little unless it is long
            only_first = self.first_done is None or done == self.first_done[0]
            known = now - self.started >= (BETWEEN_LINES if only_first else ENOUGH_WORK)
            if known and now - self.started + (self.total - done) * pace >= BETWEEN_LINES:
                self._announce(done, pace)
        elif now - self.last_line >= BETWEEN_LINES:
            percent = 100 * done // self.total
            left = duration((self.total - done) * pace)
            self._print(f"{self.name} {done} of {self.total} ({percent} %){self._loss()}, {left} left")

    def end(self) -> None:
        elapsed = self.clock() - self.started
        if elapsed > 60:
            self._print(f"{self.name} took {duration(elapsed)}{self._loss()}")

    def _seconds_per_segment(self, done: int, now: float) -> float:
        """Excludes the first segment, which includes start-up, if there are others."""
        if self.first_done is None:
            self.first_done = done, now
            return (now - self.started) / (done - self.completed)
        before, then = self.first_done
        return (now - then) / (done - before) if done > before else (now - self.started) / (done - self.completed)

    def _announce(self, done: int, pace: float) -> None:
        self.announced = True
        left = duration((self.total - done) * pace)
        self._print(f"{self.name} {done} of {self.total}, about {left} left")

    def _loss(self) -> str:
        return "" if self.loss is None else f", loss {self.loss:.3f}"

    def _print(self, line: str) -> None:
        self.last_line = self.clock()
        self.console.print(line, soft_wrap=True, markup=False, emoji=False, highlight=False)


def duration(seconds: float) -> str:
    """45 s, 3 min 20 s, 2 h 5 min"""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"
