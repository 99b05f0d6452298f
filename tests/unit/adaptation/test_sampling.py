"""Task sampling by learnability: half won before always won, the long unseen in any case, and never one slot twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from rla.adaptation.selection import drawn_tasks, learnability, tasks_and_reserve
from rla.adaptation.standings import Seen, last_measurements, next_standings
from rla.config.sections import AdaptationConfig, RolloutConfig
from tests.unit.adaptation.builders import pending, task, verdict_on

POOL = [task(f"s{n}") for n in range(10)]
LEARNABLE = RolloutConfig(tasks_per_iteration=4, sampling="learnability")
# s0 and s1 are mixed, s2 to s7 one-sided, s8 and s9 were never played. s7 was not seen for longest.
SEEN = {"s0": Seen(9, 0.5), "s1": Seen(9, 0.25), **{f"s{n}": Seen(10 - n, n % 2) for n in range(2, 8)}}


def drawn(
    count: int, *, config: RolloutConfig = LEARNABLE, seed: int = 0, seen: Mapping[str, Seen] = SEEN
) -> list[str]:
    return [one.slot for one in drawn_tasks(POOL, count, config=config, seen=seen, seed=seed)]


def test_learnability_is_the_variance_of_the_outcome() -> None:
    assert [learnability(Seen(1, a)) for a in (0.0, 0.5, 0.25, 1.0)] == [0.0, 0.25, 0.1875, 0.0]
    assert learnability(None) == 0.0


@pytest.mark.parametrize("seed", range(10))
def test_a_share_is_drawn_among_the_unseen_and_the_rest_by_learnability(seed: int) -> None:
    """Of four places one is for a slot that was never seen, two for the mixed ones; the last is filled up by age."""
    found = drawn(4, seed=seed)
    assert found[0] in ("s8", "s9") and set(found[1:3]) == {"s0", "s1"}
    assert {found[0], found[3]} == {"s8", "s9"}


def test_whoever_was_not_seen_for_longest_comes_first_and_always_won_tasks_come_back() -> None:
    every = {**SEEN, "s8": Seen(1, 0.0), "s9": Seen(2, 1.0)}
    assert drawn(4, seen=every)[0] == "s8"
    assert drawn(8, seen=every)[:2] == ["s8", "s9"]


def test_weights_are_those_of_the_variance() -> None:
    """One place beside the unseen one: a half (weight 0.25) against a tenth (0.09) is drawn in 0.25 / 0.34 = 73.5%."""
    seen = {**{f"s{n}": Seen(9, 0.0) for n in range(2, 9)}, "s0": Seen(9, 0.5), "s1": Seen(9, 0.1)}
    times = Counter(drawn(2, seed=seed, seen=seen)[1] for seed in range(2000))
    assert times["s0"] + times["s1"] == 2000
    assert 0.70 < times["s0"] / 2000 < 0.77


def test_no_slot_is_drawn_twice_and_no_more_than_there_are() -> None:
    for count in (0, 1, 7, 10, 50):
        found = drawn(count)
        assert len(found) == len(set(found)) == min(count, 10)
    assert len(drawn(4, seen={})) == 4  # the first iteration knows nothing


def test_a_measurement_is_kept_until_the_task_changes() -> None:
    """Played, not played, replaced by an accepted task (measured while it was pending), which then gives way."""
    config = AdaptationConfig(return_after=1, cooldown=0)
    held, child = task("a"), pending("a", task_id="a1")
    first = next_standings([held], [], {"a": (0.25, 8)}, [], iteration=1, config=config)
    later = next_standings([held], [], {}, first, iteration=2, config=config)
    assert last_measurements(first) == last_measurements(later) == {"a": Seen(1, 0.25)}
    verdict = verdict_on(child, accepted=True, iteration=3)
    accepted = next_standings([held], [verdict], {}, later, iteration=3, config=config)
    assert last_measurements(accepted) == {"a": Seen(3, 0.5)}
    descendant = task("a", task_id="a1", depth=1)
    back = next_standings([descendant], [], {"a1": (0.0, 8)}, accepted, iteration=4, config=config)
    assert back[0].task_id == "a" and last_measurements(back) == {}


def test_the_reserve_has_further_slots_up_to_the_budget() -> None:
    config = RolloutConfig(tasks_per_iteration=3, fill="mixed")
    waiting = [pending("s7", task_id="y")]
    first, reserve = tasks_and_reserve(POOL, waiting, config=config, acceptance="paper", seed=1, run_seed=1, seen={})
    assert len(first) == 4 and len(reserve) == 6
    slots = [one.slot for one in (*first, *reserve)]
    assert len(set(slots)) == 10 and slots.count("s7") == 1  # the pending one alone
    plain = RolloutConfig(tasks_per_iteration=3)
    assert tasks_and_reserve(POOL, waiting, config=plain, acceptance="paper", seed=1, run_seed=1, seen={}) == (
        first,
        [],
    )
    wide = RolloutConfig(tasks_per_iteration=2, fill="mixed")
    assert len(tasks_and_reserve(POOL, [], config=wide, acceptance="paper", seed=1, run_seed=1, seen={})[1]) == 4
