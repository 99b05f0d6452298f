"""Calls that are made at a time: their order, what fails, and how many there are."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from rla.config import Config
from rla.envs.protocols import at_once, begun


def test_answers_come_in_the_order_of_the_calls_whoever_is_done_first() -> None:
    def slow(number: int) -> int:
        time.sleep(0.02 * (number % 3 == 0))
        return number

    assert [told() for told in begun((partial(slow, number) for number in range(9)), 3)] == list(range(9))


def test_so_many_calls_meet_and_no_more() -> None:
    """Two wait for each other in each round; with three at a time one of the rounds would have a third."""
    meeting, most = threading.Barrier(2, timeout=10), list[int]()
    lock, now = threading.Lock(), [0]

    def call() -> None:
        with lock:
            now[0] += 1
            most.append(now[0])
        meeting.wait()
        with lock:
            now[0] -= 1

    for told in begun([call] * 8, 2):
        told()
    assert max(most) == 2


def test_what_a_call_raises_is_raised_where_it_is_asked_for_and_the_others_go_on() -> None:
    def call(number: int) -> int:
        if number == 1:
            raise OSError("one")
        return number

    first, second, third = begun((partial(call, number) for number in range(3)), 2)
    assert first() == 0 and third() == 2
    with pytest.raises(OSError, match="one"):
        second()


def test_alone_a_call_is_made_when_its_turn_comes() -> None:
    made: list[int] = []
    told = begun((partial(made.append, number) for number in range(3)), 1)
    next(told)
    assert made == []
    next(told)()
    assert made == [1]


def test_who_stops_asking_ends_what_has_not_begun() -> None:
    """Two calls are under way and two wait for their turn when the first answer comes."""
    made, held = list[int](), threading.Event()

    def call(number: int) -> None:
        made.append(number)
        if number:
            held.wait(10)

    told = begun((partial(call, number) for number in range(1000)), 2)
    next(told)()
    until = time.monotonic() + 10
    while len(made) < 3 and time.monotonic() < until:
        time.sleep(0.001)
    threading.Timer(0.2, held.set).start()
    told.close()  # type: ignore[attr-defined]
    assert made == [0, 1, 2]


def test_an_environment_that_says_nothing_is_asked_once_at_a_time() -> None:
    assert at_once(object(), Config()) == 1
