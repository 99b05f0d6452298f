"""Groups of coroutines: started in order, so many at a time, handed over whole, taken when there is room."""

import asyncio
from collections.abc import Iterator

import pytest

from rla.rollouts.play import run_groups


def test_results_come_in_the_order_of_the_members_and_groups_as_they_finish() -> None:
    finished: list[tuple[int, list[str]]] = []

    async def wait(turns: int) -> str:
        for _ in range(turns):
            await asyncio.sleep(0)
        return f"after {turns}"

    groups = [[9, 1], [], [2]]
    asyncio.run(run_groups(groups, wait, concurrency=8, finished=lambda *found: finished.append(found)))
    assert finished == [(1, []), (2, ["after 2"]), (0, ["after 9", "after 1"])]


def test_what_is_in_memory_is_bounded_by_concurrency() -> None:
    taken, whole, running, most = [0], [0], [0], [0]

    def endless() -> Iterator[list[int]]:
        for number in range(500):
            taken[0] += 1
            assert taken[0] - whole[0] <= 4 + 1  # at most one that waits for room
            yield [number, number]

    async def one(number: int) -> int:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0)
        running[0] -= 1
        return number

    def finished(position: int, results: list[int]) -> None:
        whole[0] += 1
        assert results == [position, position]

    asyncio.run(run_groups(endless(), one, concurrency=4, finished=finished))
    assert whole[0] == 500 and most[0] == 4


@pytest.mark.parametrize("culprit", ["member", "finished", "groups"])
def test_an_error_anywhere_ends_all_and_is_raised(culprit: str) -> None:
    cancelled = []

    async def one(number: int) -> int:
        if number == 1 and culprit == "member":
            raise OSError("member")
        try:
            await asyncio.sleep(0 if number == 1 else 60)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    def finished(position: int, results: list[int]) -> None:
        if culprit == "finished":
            raise OSError("finished")

    def groups() -> Iterator[list[int]]:
        yield [0]
        yield [1]
        if culprit == "groups":
            raise OSError("groups")

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(asyncio.wait_for(run_groups(groups(), one, concurrency=4, finished=finished), 5))
    assert caught.group_contains(OSError, match=culprit)
    assert culprit == "groups" or cancelled == [0]
