import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rla.envs.alfworld.engine import FastEngine, FastGame, Op, State, apply, legal
from rla.envs.alfworld.goals import TaskKind
from rla.envs.alfworld.solver import remaining, solve

from . import scenes

WORK = {Op.GO, Op.OPEN, Op.CLOSE, Op.TAKE, Op.PUT, Op.USE}
SMALL = {
    "CounterTop_bar_1": 1,
    "Cabinet_bar_1": 2,
    "Cabinet_bar_2": 2,
    "Sink_bar_1_bar_SinkBasin": 3,
    "Fridge_bar_1": 3,
}


def plain(state: State) -> State:
    """Without what only `look` and slicing read."""
    return state._replace(removed=frozenset(), lying=frozenset())


def distances(tables: FastGame) -> dict[State, int]:
    """Commands to the nearest won state (-1: none), by breadth-first search over every state, backwards."""
    useful = WORK | {tables.treatment} if tables.treatment else WORK
    start = plain(tables.start)
    before: dict[State, list[State]] = {start: []}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for move in legal(tables, state).values():
            if move.op not in useful:
                continue
            after = plain(apply(tables, state, move))
            if after not in before:
                before[after] = []
                queue.append(after)
            before[after].append(state)
    found = {state: 0 for state in before if tables.won(state)}
    queue = deque(found)
    while queue:
        state = queue.popleft()
        for earlier in before[state]:
            if earlier not in found:
                found[earlier] = found[state] + 1
                queue.append(earlier)
    return {state: found.get(state, -1) for state in before}


def check(tables: FastGame, *, at_most: int = 4000) -> None:
    found = list(distances(tables).items())
    for state, distance in random.Random(0).sample(found, min(len(found), at_most)):
        assert remaining(tables, state) == (None if distance < 0 else distance), state


@pytest.mark.parametrize("kind", [TaskKind.PLACE, TaskKind.CLEAN, TaskKind.COOL, TaskKind.TWO])
def test_the_remaining_distance_is_the_shortest_one_from_every_state(kind: TaskKind) -> None:
    lying = (("Mug_bar_1", "CounterTop_bar_1"), ("Mug_bar_2", "Cabinet_bar_2"))
    check(FastGame(scenes.game(kind, "Mug", "Cabinet", receptacles=SMALL, lying=lying)))


def test_the_same_with_a_thing_in_the_way_of_the_hand() -> None:
    lying = (("Mug_bar_1", "Cabinet_bar_1"), ("Apple_bar_1", "CounterTop_bar_1"))
    small = {name: place for name, place in SMALL.items() if name != "Cabinet_bar_2"}
    check(FastGame(scenes.game(TaskKind.COOL, "Mug", "CounterTop", receptacles=small, lying=lying)))


def test_the_same_for_the_lamp() -> None:
    small = {"SideTable_bar_1": 1, "CounterTop_bar_1": 2, "Cabinet_bar_1": 3, "Cabinet_bar_2": 1}
    lying = (
        ("Mug_bar_1", "Cabinet_bar_1"),
        ("Mug_bar_2", "Cabinet_bar_2"),
        ("Apple_bar_1", "CounterTop_bar_1"),
        ("DeskLamp_bar_1", "SideTable_bar_1"),
        ("DeskLamp_bar_2", "CounterTop_bar_1"),
    )
    check(FastGame(scenes.game(TaskKind.LOOK, "Mug", "DeskLamp", receptacles=small, lying=lying)))


PLACES = ["CounterTop_bar_1", "Cabinet_bar_1", "Sink_bar_1_bar_SinkBasin", "Fridge_bar_1"]


@settings(max_examples=20)
@given(
    kind=st.sampled_from([kind for kind in TaskKind if kind not in (TaskKind.LOOK, TaskKind.HEAT)]),
    target=st.sampled_from(["CounterTop", "Cabinet", "SinkBasin", "Fridge"]),
    locations=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    items=st.lists(st.tuples(st.sampled_from(["Mug", "Apple"]), st.sampled_from(PLACES)), min_size=1, max_size=2),
    ghost=st.booleans(),
)
def test_the_same_in_any_small_scene(
    kind: TaskKind, target: str, locations: list[int], items: list[tuple[str, str]], ghost: bool
) -> None:
    """With `ghost`, the first object is listed in two receptacles, as in some real scenes."""
    lying = {(f"{name}_bar_{number}", place) for number, (name, place) in enumerate(items)}
    if ghost:
        lying.add((f"{items[0][0]}_bar_0", PLACES[0]))
    receptacles = dict(zip(PLACES, locations, strict=True))
    game = scenes.game(kind, "Mug", target, receptacles=receptacles, lying=sorted(lying))
    check(FastGame(game), at_most=500)


@pytest.mark.parametrize("kind", TaskKind)
def test_a_plan_is_played_to_the_win_and_counts_down(kind: TaskKind) -> None:
    target = "DeskLamp" if kind is TaskKind.LOOK else "Cabinet"
    tables = FastGame(scenes.game(kind, "Mug", target))
    plan = solve(tables)
    assert plan is not None
    engine = FastEngine(tables)
    engine.reset()
    for left, command in zip(range(len(plan), 0, -1), plan, strict=True):
        assert remaining(tables, engine.state) == left
        engine.step(command)
    assert remaining(tables, engine.state) == 0


def test_the_shortest_plan_for_two_uses_the_cabinet_that_has_one() -> None:
    plan = solve(FastGame(scenes.game(TaskKind.TWO, "Mug", "Cabinet")))
    assert plan == [
        "go to countertop 1",
        "take mug 2 from countertop 1",
        "go to cabinet 1",
        "open cabinet 1",
        "put mug 2 in/on cabinet 1",
    ]


def test_what_cannot_be_won_has_no_plan() -> None:
    without_mug = (("Apple_bar_1", "CounterTop_bar_1"),)
    tables = FastGame(scenes.game(TaskKind.PLACE, "Mug", "Cabinet", lying=without_mug))
    assert solve(tables) is None and remaining(tables, tables.start) is None
    assert solve(FastGame(scenes.game(TaskKind.PLACE, "Apple", "Cabinet"))) is None
