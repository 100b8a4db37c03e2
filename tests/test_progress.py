from __future__ import annotations

import io
from dataclasses import dataclass, field

import pytest
from rich.console import Console

from fscil.progress import duration, stage_progress


@dataclass
class Log:
    """What a log file gets from a stage whose segments take the given seconds."""

    file: io.StringIO = field(default_factory=io.StringIO)
    now: float = 1000.0

    def train(self, *seconds: float, total: int | None = None, completed: int = 0, spent: float = 0.0) -> list[str]:
        console = Console(file=self.file, force_terminal=False, width=40)
        total = len(seconds) if total is None else total
        with stage_progress(console, "pretrain", total, completed, spent, clock=lambda: self.now) as progress:
            for done, each in enumerate(seconds, completed + 1):
                self.now += each
                progress.update(done, loss=2 / done)
        return self.lines()

    def lines(self) -> list[str]:
        return self.file.getvalue().splitlines()


def test_an_hour_is_a_line_a_minute() -> None:
    lines = Log().train(*[12.0] * 300)
    first, *between, last = lines
    assert first == "pretrain 2 of 300, about 59 min 36 s left"
    assert between[0] == "pretrain 7 of 300 (2 %), loss 0.286, 58 min 36 s left"
    assert between[-1] == "pretrain 297 of 300 (99 %), loss 0.007, 36 s left"
    assert len(between) == 59
    assert last == "pretrain took 1 h 0 min, loss 0.007"


def test_an_estimate_waits_for_five_seconds_of_work_and_leaves_out_the_slow_start() -> None:
    lines = Log().train(4.0, *[0.5] * 200)
    assert lines[0] == "pretrain 3 of 201, about 1 min 39 s left"
    lines = Log().train(9.0, *[0.5] * 200)  # capturing a step takes longer than thousands of them
    assert lines[0] == "pretrain 2 of 201, about 1 min 40 s left"


@pytest.mark.parametrize("seconds", [[0.1] * 40, [30.0], [1.0] * 55, [20.0, 19.0, 19.0]])
def test_stages_of_less_than_a_minute_get_no_line(seconds: list[float]) -> None:
    assert Log().train(*seconds) == []


def test_a_stage_that_turns_out_to_be_long_is_announced_then() -> None:
    lines = Log().train(*[1.0] * 20, *[5.0] * 20)
    assert lines[0].startswith("pretrain 23 of 40, about 26 s left")
    assert lines[-1].startswith("pretrain took 2 min 0 s")


def test_one_long_segment_is_told_at_its_end() -> None:
    assert Log().train(200.0) == ["pretrain took 3 min 20 s, loss 2.000"]


def test_a_resumed_stage_knows_its_time_before_it_begins() -> None:
    log = Log()
    assert log.train(total=300, completed=100, spent=200.0) == ["pretrain 100 of 300, about 6 min 40 s left"]
    again = Log().train(*[31.0] * 3, total=300, completed=100, spent=200.0)
    assert again[1] == "pretrain 102 of 300 (34 %), loss 0.020, 1 h 42 min left"
    assert again[-1] == "pretrain took 1 min 33 s, loss 0.019"


def test_a_finished_stage_says_nothing() -> None:
    assert Log().train(total=300, completed=300, spent=2000.0) == []


def test_a_failed_stage_does_not_claim_its_end() -> None:
    log = Log()

    def fail() -> None:
        with stage_progress(Console(file=log.file), "pretrain", 10, clock=lambda: log.now) as progress:
            log.now += 100
            progress.update(1, 0.5)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()
    assert log.lines() == ["pretrain 1 of 10, about 15 min 0 s left"]


def test_names_are_no_markup_and_long_lines_stay_whole() -> None:
    log = Log()
    name = "[red]trial-12-session-8-" + "x" * 60
    with stage_progress(Console(file=log.file, width=40), name, 2, clock=lambda: log.now) as progress:
        log.now += 90
        progress.update(1)
    assert log.lines() == [f"{name} 1 of 2, about 1 min 30 s left", f"{name} took 1 min 30 s"]


def test_a_terminal_gets_a_bar() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    with stage_progress(console, "pretrain", 7, completed=2) as progress:
        progress.update(3, 1.25)
    assert "pretrain (loss 1.250)" in screen.getvalue()
    assert "3/7" in screen.getvalue()
    assert "left" in screen.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (45, "45 s"), (59.7, "1 min 0 s"), (200, "3 min 20 s"), (3599.8, "1 h 0 min"), (7500, "2 h 5 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
