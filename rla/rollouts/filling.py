"""Dynamic sampling: tasks are played until enough groups are mixed, within a budget (DAPO, Yu et al. 2025).

A group is the episodes of one task. One that was won and lost trains; one that was always won, or always lost, has no
advantages. The first round plays what is played in any case. Each further round plays as many tasks of the reserve as
would fill up what is missing at the rate seen so far, (mixed + 1) / (played + 2), until nothing is missing or the
reserve is empty.

A round begins when the one before it has ended: so it does not depend on which episode ends first, and a call that goes
on after a kill finds the same rounds. Every slice (`--slice`, `--workers`) fills its own share, so here the number of
slices does change what is played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from rla.store.records import StopReason


def is_mixed(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a group was won and lost. `rows`: outcome, stop_reason; episodes that the environment broke count not."""
    return {row["outcome"] for row in rows if row["stop_reason"] != StopReason.ENV_ERROR} == {1, -1}


def round_size(*, mixed: int, played: int, target: int) -> int:
    """How many more tasks would fill the target at the rate seen so far; 0 where it is reached."""
    missing = target - mixed
    return max(0, ceil(missing * (played + 2) / (mixed + 1)))


def filling_rounds(
    first: Sequence[int], active: Sequence[int], reserve: Sequence[int], mixed: Callable[[int], bool]
) -> Iterator[list[int]]:
    """The groups of each round, by index. `first`: the whole first round; `active`: those of it that are to be mixed.

    `mixed(index)` says it of a group that has been played: it is asked once the round before has ended.
    """
    yield list(first)
    played, left = list(active), list(reserve)
    while left:
        size = round_size(mixed=sum(map(mixed, played)), played=len(played), target=len(active))
        if size == 0:
            return
        yield left[:size]
        played, left = played + left[:size], left[size:]
