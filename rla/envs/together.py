"""Demonstrations and labels of an environment that waits for something else: several are asked for at a time.

What they say may not depend on how many are: they are given in the order in which they were asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar, runtime_checkable

from rla.config import Config

Answer = TypeVar("Answer")
AHEAD = 2  # calls for each that may be under way: who is done need not wait for the one that is read next


@runtime_checkable
class Together(Protocol):
    """`demonstrate`, `label` and `label_seen` may be called from several threads."""

    def at_once(self, config: Config) -> int:
        """From how many it is of use: 1 or more."""
        ...


def at_once(env: object, config: Config) -> int:
    return env.at_once(config) if isinstance(env, Together) else 1


def begun(calls: Iterable[Callable[[], Answer]], count: int) -> Iterator[Callable[[], Answer]]:
    """For each call, in order, one that returns what it gives or raises what it raises. With a `count` above 1 so many
    are made at a time, a few of them before somebody asks; else each is made when its turn comes.
    """
    if count == 1:
        yield from calls
        return
    waiting: deque[Future[Answer]] = deque()
    with ThreadPoolExecutor(count) as pool:
        try:
            for call in calls:
                waiting.append(pool.submit(call))
                if len(waiting) == AHEAD * count:
                    yield waiting.popleft().result
            while waiting:
                yield waiting.popleft().result
        finally:
            for left in waiting:
                left.cancel()
