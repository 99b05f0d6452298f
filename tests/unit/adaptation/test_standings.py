"""How slots stand: measurements outside the band in a row, returns to the root, rests; and no slot is ever lost."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rla.adaptation.acceptance import Measured, Standing, TaskVerdict, judge_pending, next_pool, next_standings
from rla.config.sections import AdaptationConfig
from rla.errors import UserError
from rla.store.records import Status, Task
from rla.store.schema import to_table
from tests.unit.adaptation.builders import lineage, pending, task, verdict_on

CONFIG = AdaptationConfig(alpha_low=0.2, alpha_high=0.8, max_depth=2, cooldown=1, return_after=2)


def after(
    held: Task, accuracies: list[float | None], *, config: AdaptationConfig = CONFIG, start: Standing | None = None
) -> Standing:
    """How the slot of `held` stands after it was measured so in iterations 1, 2, ...; None: not played."""
    standings = [start] if start else []
    for iteration, accuracy in enumerate(accuracies, 1):
        measured: dict[str, Measured] = {} if accuracy is None else {held.task_id: (accuracy, 8)}
        standings = next_standings([held], [], measured, standings, iteration=iteration, config=config)
    return standings[0]


@pytest.mark.parametrize(
    ("edits", "accuracies", "reason"),
    [
        (1, [0.0, 0.0], "too hard in 2 measurements, last accuracy 0.000"),
        (1, [0.125, None, None, 0.15], "too hard in 2 measurements, last accuracy 0.150"),
        (1, [0.0], ""),
        (1, [0.0, 0.5, 0.0], ""),  # back in the band in between
        (1, [1.0, 0.0], ""),  # outside twice, but on either side
        (1, [1.0, 1.0, 1.0], ""),  # too easy: it can still be made harder
        (2, [1.0, 0.85], "too easy at the depth limit in 2 measurements, last accuracy 0.850"),
        (2, [0.0, None], ""),
        (0, [0.0, 0.0], ""),  # a root has nowhere to go
    ],
)
def test_a_task_goes_back_when_its_last_measurements_are_outside(
    edits: int, accuracies: list[float | None], reason: str
) -> None:
    standing = after(lineage("a", edits), accuracies)
    assert standing.reason == reason
    assert (standing.decision == "returned") == bool(reason)
    assert to_table("standings", [asdict(standing)]).num_rows == 1


def chain(*directions: str) -> Standing:
    """The standing of slot a after such edits were accepted one after another."""
    standings: list[Standing] = []
    for iteration, direction in enumerate(directions, 1):
        held = lineage("a", iteration - 1)
        child = pending("a", task_id=f"a-{iteration}", parent_id=held.task_id, direction=direction)
        verdict = replace(verdict_on(child, accepted=True, iteration=iteration), direction=direction)
        measured = {child.task_id: (0.5, 8)}
        standings = next_standings([held], [verdict], measured, standings, iteration=iteration, config=DEEP)
    return standings[0]


DEEP = AdaptationConfig(alpha_low=0.2, alpha_high=0.8, max_depth=4, cooldown=1, return_after=2)


@pytest.mark.parametrize(
    ("directions", "reason"),
    [
        (("easier",), "mastered in 2 measurements, last accuracy 0.875"),
        (("easier", "easier"), "mastered in 2 measurements, last accuracy 0.875"),
        (("harder",), ""),
        (("harder", "easier"), ""),  # its root was mastered before it
        (("easier", "harder"), ""),
    ],
)
def test_what_only_made_the_root_easier_gives_way_once_it_is_mastered(directions: tuple[str, ...], reason: str) -> None:
    start = chain(*directions)
    assert start.eased is bool(reason)
    held, standings = lineage("a", len(directions)), [start]
    for iteration, accuracy in enumerate((1.0, 0.875), len(directions) + 1):
        measured: dict[str, Measured] = {held.task_id: (accuracy, 8)}
        standings = next_standings([held], [], measured, standings, iteration=iteration, config=DEEP)
    assert standings[0].reason == reason
    assert standings[0].eased is (directions in (("easier",), ("easier", "easier")) and not reason)


def test_what_was_judged_for_a_slot_is_remembered() -> None:
    held, standings = lineage("a", 0), list[Standing]()
    for iteration, accepted, rollouts in ((1, False, 8), (2, False, 0), (3, True, 8)):
        child = pending("a", task_id=f"a-{iteration}")
        verdict = replace(verdict_on(child, accepted=accepted, iteration=iteration), rollouts=rollouts)
        standings = next_standings([held], [verdict], {}, standings, iteration=iteration, config=CONFIG)
    assert standings[0].tried == ("a-1", "a-3")  # the second was never played


def test_return_after_says_how_many_and_0_never() -> None:
    held = lineage("a", 1)
    assert after(held, [0.0], config=AdaptationConfig(return_after=1)).decision == "returned"
    assert after(held, [0.0] * 3, config=AdaptationConfig(return_after=4)).streak == 3
    assert after(held, [0.0] * 9, config=AdaptationConfig(return_after=0)).decision == "kept"


def test_measurements_that_agree_are_counted_from_the_last_one_back() -> None:
    """Too hard twice in a row, with an iteration between in which it was not played."""
    assert after(lineage("a", 0), [1.0, 0.0, None, 0.125]).streak == 2
    assert after(lineage("a", 0), [0.0, 1.0]).streak == 1


def test_a_return_starts_the_slot_anew_and_counts() -> None:
    standing = after(lineage("a", 2), [0.0, 0.0])
    assert (standing.held_id, standing.task_id, standing.depth, standing.since) == ("a-2", "a", 0, 2)
    assert (standing.outside, standing.streak, standing.returned) == (None, 0, 1)


def test_an_accepted_task_goes_before_a_return_and_its_own_measurement_does_not_count() -> None:
    held, child = lineage("a", 1), pending("a", task_id="a-2", parent_id="a-1")
    first = after(held, [0.0])
    measured = {"a-1": (0.0, 8), "a-2": (1.0, 8)}
    verdict = verdict_on(child, accepted=True, iteration=2)
    [standing] = next_standings([held], [verdict], measured, [first], iteration=2, config=CONFIG)
    assert (standing.decision, standing.task_id, standing.depth) == ("accepted", "a-2", 2)
    assert (standing.streak, standing.accepted, standing.accuracy) == (0, 1, 0.0)


def test_a_rejected_task_leaves_the_row_of_measurements_and_may_bring_the_return() -> None:
    held, child = lineage("a", 1), pending("a", task_id="a-2", parent_id="a-1")
    verdict = verdict_on(child, accepted=False, iteration=2)
    first = after(held, [0.0])
    [unplayed] = next_standings([held], [verdict], {"a-2": (0.0, 8)}, [first], iteration=2, config=CONFIG)
    assert (unplayed.decision, unplayed.streak) == ("rejected", 1)
    [played] = next_standings([held], [verdict], {"a-1": (0.0, 8)}, [first], iteration=2, config=CONFIG)
    assert (played.decision, played.task_id) == ("returned", "a")


@pytest.mark.parametrize(
    ("cooldown", "verdict_rests", "return_rests"), [(0, [], []), (1, [2], [2, 3]), (2, [2, 3], [2, 3, 4])]
)
def test_a_slot_rests_after_a_verdict_and_after_a_return(
    cooldown: int, verdict_rests: list[int], return_rests: list[int]
) -> None:
    """Both decided in iteration 2. A root that came back is first played in 3, so its rest reaches one further."""
    config = AdaptationConfig(cooldown=cooldown, return_after=2)
    child = pending("a", task_id="a-2", parent_id="a-1")
    verdict = verdict_on(child, accepted=False, iteration=2)
    [judged] = next_standings(
        [lineage("a", 1)], [verdict], {}, [after(lineage("a", 1), [0.5])], iteration=2, config=config
    )
    returned = after(lineage("a", 1), [0.0, 0.0], config=config)
    assert [n for n in range(2, 7) if judged.rests_until >= n] == verdict_rests
    assert [n for n in range(2, 7) if returned.rests_until >= n] == (return_rests if cooldown else [2])


def test_standings_of_another_pool_are_refused() -> None:
    standing = after(task("a"), [0.5])
    with pytest.raises(UserError, match="slot a is held by another task than in the pool"):
        next_standings([lineage("a", 1)], [], {}, [standing], iteration=2, config=CONFIG)
    with pytest.raises(UserError, match="slot b is held by another task"):
        next_standings([task("b")], [], {}, [standing], iteration=2, config=CONFIG)


Event = tuple[float | None, float | None]  # accuracy of the task in the slot, and of a pending one; None: not there
HISTORIES = st.lists(
    st.lists(
        st.tuples(*[st.none() | st.sampled_from([0.0, 0.125, 0.5, 0.75, 1.0])] * 2),
        min_size=3,
        max_size=3,
    ),
    min_size=1,
    max_size=12,
)


def judged(
    pool: list[Task], events: list[Event], iteration: int, rule: str
) -> tuple[list[Task], list[TaskVerdict], dict[str, Measured]]:
    """Pending tasks of one iteration, their verdicts, and what was measured."""
    measured: dict[str, Measured] = {}
    children = []
    for held, (own, child) in zip(pool, events, strict=True):
        if own is not None:
            measured[held.task_id] = (own, 8)
        if child is not None and held.depth < CONFIG.max_depth:
            name = f"{held.slot}-{iteration}"
            direction = "easier" if own == 0.0 else "harder"
            made = pending(held.slot, task_id=name, parent_id=held.task_id, direction=direction)
            children.append(Task(**{**made.row(), "depth": held.depth + 1}))
            measured[name] = (child, 8)
    verdicts = judge_pending(
        children,
        measured,
        {child.task_id: measured.get(child.parent_id or "", (1.0, 8))[0] for child in children},
        iteration=iteration,
        config=replace(CONFIG, acceptance="interval" if rule == "interval" else "paper"),
    )
    return children, verdicts, measured


@settings(max_examples=150)
@given(HISTORIES, st.sampled_from(["paper", "interval"]))
def test_no_history_loses_a_slot(history: list[list[Event]], rule: str) -> None:
    roots = {t.slot: t for t in (task("a"), task("b"), task("c"))}
    pool, standings = list(roots.values()), []
    accepted = returned = 0
    for iteration, events in enumerate(history, 1):
        children, verdicts, measured = judged(pool, events, iteration, rule)
        standings = next_standings(pool, verdicts, measured, standings, iteration=iteration, config=CONFIG)
        back = {standing.slot for standing in standings if standing.decision == "returned"}
        assert all(task.depth > 0 for task in pool if task.slot in back)
        pool = next_pool(pool, children, verdicts, {slot: roots[slot] for slot in back})
        accepted += sum(verdict.accepted for verdict in verdicts)
        returned += len(back)
        assert [task.slot for task in pool] == list(roots)
        assert all(task.status == Status.ACTIVE and task.depth <= CONFIG.max_depth for task in pool)
        assert [(s.slot, s.task_id, s.depth) for s in standings] == [(t.slot, t.task_id, t.depth) for t in pool]
        assert all(pool[list(roots).index(slot)] == roots[slot] for slot in back)
    assert (sum(s.accepted for s in standings), sum(s.returned for s in standings)) == (accepted, returned)
