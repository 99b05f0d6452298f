"""Calls that run ahead in threads: their order, their exceptions, and how many run at a time."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from rla.config import Config
from rla.envs.protocols import prefetched


class Environment:
    """Wants `count` calls at a time."""

    def __init__(self, count: int) -> None:
        self.count = count

    def concurrency(self, config: Config) -> int:
        return self.count


def test_results_come_in_the_order_of_the_calls() -> None:
    def slow(number: int) -> int:
        time.sleep(0.02 * (number % 3 == 0))
        return number

    calls = (partial(slow, number) for number in range(9))
    assert [result() for result in prefetched(calls, Environment(3), Config())] == list(range(9))


def test_two_calls_run_at_a_time_and_never_three() -> None:
    """Each call waits for another one, so a single thread would hang."""
    meeting, most = threading.Barrier(2, timeout=10), list[int]()
    lock, now = threading.Lock(), [0]

    def call() -> None:
        with lock:
            now[0] += 1
            most.append(now[0])
        meeting.wait()
        with lock:
            now[0] -= 1

    for result in prefetched([call] * 8, Environment(2), Config()):
        result()
    assert max(most) == 2


def test_an_exception_is_raised_by_its_own_result_and_the_other_calls_go_on() -> None:
    def call(number: int) -> int:
        if number == 1:
            raise OSError("one")
        return number

    first, second, third = prefetched((partial(call, number) for number in range(3)), Environment(2), Config())
    assert first() == 0 and third() == 2
    with pytest.raises(OSError, match="one"):
        second()


def test_without_the_protocol_a_call_runs_when_its_result_is_asked_for() -> None:
    made: list[int] = []
    results = prefetched((partial(made.append, number) for number in range(3)), object(), Config())
    next(results)
    assert made == []
    next(results)()
    assert made == [1]


def test_closing_cancels_the_calls_that_have_not_started() -> None:
    """Two calls run and two are queued when the first result arrives."""
    made, held = list[int](), threading.Event()

    def call(number: int) -> None:
        made.append(number)
        if number:
            held.wait(10)

    results = prefetched((partial(call, number) for number in range(1000)), Environment(2), Config())
    next(results)()
    until = time.monotonic() + 10
    while len(made) < 3 and time.monotonic() < until:
        time.sleep(0.001)
    threading.Timer(0.2, held.set).start()
    results.close()  # type: ignore[attr-defined]
    assert made == [0, 1, 2]
