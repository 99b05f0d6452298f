"""Groups of coroutines, bounded in number and started in order: what rollouts and judgements are scheduled by.

A group is taken from its iterable when one of its members can start, and forgotten when it is handed over: what is in
memory is bounded by `concurrency`, not by the number of groups. No group waits for another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Group(Generic[Result]):
    """The results of one group, in the order of its members; whole when none is missing."""

    def __init__(self, size: int) -> None:
        self.found: dict[int, Result] = {}
        self.size = size

    def add(self, place: int, result: Result) -> bool:
        """Keep one result; whether it was the last one."""
        self.found[place] = result
        return len(self.found) == self.size

    def results(self) -> list[Result]:
        return [self.found[place] for place in range(self.size)]


async def run_groups(
    groups: Iterable[Sequence[Item]],
    one: Callable[[Item], Awaitable[Result]],
    *,
    concurrency: int,
    finished: Callable[[int, list[Result]], None],
) -> None:
    """Run `one` for every member of every group; `finished(position, results)` as each group is whole.

    Members start in order, at most `concurrency` at a time. An exception of a member, of `finished` or of the iterable
    cancels the rest and is raised inside an exception group.
    """
    gate = asyncio.Semaphore(concurrency)

    async def member(position: int, group: Group[Result], place: int, item: Item) -> None:
        try:
            result = await one(item)
        finally:
            gate.release()
        if group.add(place, result):
            finished(position, group.results())

    async with asyncio.TaskGroup() as tasks:
        for position, items in enumerate(groups):
            group: Group[Result] = Group(len(items))
            if not items:
                finished(position, [])
            for place, item in enumerate(items):
                await gate.acquire()
                tasks.create_task(member(position, group, place, item))
