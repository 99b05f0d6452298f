"""Progress: few lines in a log, one that is redrawn on a terminal."""

from __future__ import annotations

import io

import pytest

from rla.cli.progress import CLEAR, LineProgress, make_progress
from rla.text import duration


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def play(episodes: int, seconds_each: float) -> str:
    """What a log holds after `episodes` steps of equal length."""
    stream, clock = io.StringIO(), Clock()
    with LineProgress(stream, clock=clock) as progress:
        progress.start("rollout", total=episodes)
        for _ in range(episodes):
            clock.now += seconds_each
            progress.advance(won=1)
    return stream.getvalue()


def test_short_work_says_nothing() -> None:
    assert play(episodes=9, seconds_each=1) == ""


def test_long_work_says_a_line_every_ten_seconds_and_one_at_the_end() -> None:
    assert play(episodes=10, seconds_each=4).splitlines() == [
        "rollout 3/10, 0.2/s, 28 s left, won 1",
        "rollout 6/10, 0.2/s, 16 s left, won 1",
        "rollout 9/10, 0.2/s, 4 s left, won 1",
        "rollout 10/10 in 40 s, 0.2/s",
    ]


def test_steps_of_an_earlier_call_say_nothing_about_the_speed() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = LineProgress(stream, clock=clock)
    progress.start("warm-start policy", total=80)
    for _ in range(48):
        progress.advance(resumed=True)
    for _ in range(4):
        clock.now += 20.0
        progress.advance()
    assert stream.getvalue().splitlines()[-1] == "warm-start policy 52/80, 20 s each, 9 min 20 s left"


def test_a_brief_log_has_a_line_every_two_minutes() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = make_progress(stream, brief=True)
    assert isinstance(progress, LineProgress)
    progress.clock = clock
    progress.start("rollout", total=30)
    for _ in range(30):
        clock.now += 10
        progress.advance()
    said = ["rollout 12/30, 0.1/s, 3 min 0 s left", "rollout 24/30, 0.1/s, 1 min 0 s left"]
    assert stream.getvalue().splitlines() == said


def test_the_place_in_the_loop_stands_first_and_few_steps_tell_no_time_left() -> None:
    stream, clock = io.StringIO(), Clock()
    with LineProgress(stream, place="iteration 7 of 12, ", clock=clock) as progress:
        progress.start("rollout", total=5)
        for seconds in (11, 12, 16):
            clock.now += seconds
            progress.advance()
        clock.now = 100 + 39
    assert stream.getvalue().splitlines() == [
        "iteration 7 of 12, rollout 1/5, 11 s each",
        "iteration 7 of 12, rollout 2/5, 12 s each",
        "iteration 7 of 12, rollout 3/5, 13 s each, 26 s left",
        "iteration 7 of 12, rollout 3/5 in 39 s, 13 s each",
    ]


def test_notes_come_at_once() -> None:
    stream = io.StringIO()
    LineProgress(stream).note("an untrained model acts")
    assert stream.getvalue() == "an untrained model acts\n"


def test_a_terminal_has_one_line_that_is_redrawn_and_goes_at_the_end() -> None:
    stream, clock = Terminal(), Clock()
    with LineProgress(stream, clock=clock) as progress:
        progress.start("judging", total=9)
        for _ in range(2):
            clock.now += 1
            progress.advance(unparsable=0.25)
        progress.note("half way")
    assert stream.getvalue().split(CLEAR)[1:] == [
        "judging 0/9",
        "judging 1/9, 1.0/s, unparsable 0.25",
        "judging 2/9, 1.0/s, unparsable 0.25",
        "half way\n",
        "",
    ]


def test_a_line_is_cut_to_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream, clock = Terminal(), Clock()
    progress = LineProgress(stream, clock=clock)
    progress.start("judging", total=9)
    clock.now += 1
    progress.advance(unparsable=0.25)
    assert stream.getvalue().split(CLEAR)[-1] == "judging 1/9, 1.0/s,"


@pytest.mark.parametrize(("seconds", "text"), [(7.6, "8 s"), (125, "2 min 5 s"), (3780, "1 h 3 min")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
