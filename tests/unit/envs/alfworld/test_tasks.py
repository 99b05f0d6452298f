"""Drawn tasks are balanced, solvable, not yet true, and held-out ones share nothing with training."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rla.config.sections import TasksConfig
from rla.envs.alfworld.catalog import CAN_CONTAIN, Room
from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.alfworld.game import Game, Layout, PddlProblem, Verbs, game_of
from rla.envs.alfworld.goals import Goal, TaskKind
from rla.envs.alfworld.solver import solve
from rla.envs.alfworld.tasks import Size, builtin_tasks, generate_scene, imported_games, task_from_game
from rla.errors import UserError

DATA = Path(os.environ.get("ALFWORLD_DATA", "~/.cache/alfworld")).expanduser()
needs_data = pytest.mark.skipif(not (DATA / "json_2.1.1").is_dir(), reason="needs the ALFWorld games (ALFWORLD_DATA)")


def files(folder: Path, limit: int | None = None) -> TasksConfig:
    return TasksConfig(path=str(folder), limit=limit)


def kitchen(*placed: tuple[str, str]) -> PddlProblem:
    """Fridge, sink basin, microwave and counter with (object type, receptacle type) pairs, to be put in the
    fridge.
    """
    places = ("Fridge", "SinkBasin", "Microwave", "CounterTop")
    names = [f"{kind}_bar_{number}" for number, (kind, _) in enumerate(placed)]
    objects = [
        *((name, "object") for name in names),
        *((f"{place}_bar_1", "receptacle") for place in places),
        *((f"{place}Type", "rtype") for place in places),
        *((f"{kind}Type", "otype") for kind in sorted({kind for kind, _ in placed})),
        *((f"loc_bar_{number}", "location") for number in range(5)),
        ("agent1", "agent"),
    ]
    facts: list[tuple[str, ...]] = [("atLocation", "agent1", "loc_bar_4")]
    for number, place in enumerate(places):
        facts += [("receptacleType", f"{place}_bar_1", f"{place}Type")]
        facts += [("receptacleAtLocation", f"{place}_bar_1", f"loc_bar_{number}")]
        facts += [("canContain", f"{place}Type", f"{k}Type") for k, _ in placed if k in CAN_CONTAIN[place]]
    for name, (kind, place) in zip(names, placed, strict=True):
        facts += [("objectType", name, f"{kind}Type"), ("pickupable", name), ("cleanable", name)]
        facts += [("inReceptacle", name, f"{place}_bar_1")]
        facts += [("objectAtLocation", name, f"loc_bar_{places.index(place)}")]
    return PddlProblem("kitchen", tuple(objects), tuple(facts), Goal(TaskKind.PLACE, "Egg", "Fridge"))


def test_kinds_are_balanced_and_goals_of_a_scene_differ() -> None:
    tasks = builtin_tasks(TasksConfig(train_scenes=30, tasks_per_scene=2, size="tiny"), seed=0)
    counts = Counter(task.kind for task in tasks)
    assert len(tasks) == 60
    assert set(counts) == {kind.value for kind in TaskKind}
    assert max(counts.values()) - min(counts.values()) <= 2
    assert len({(task.scene, task.instruction) for task in tasks}) == 60
    assert len({task.task_id for task in tasks}) == 60
    assert all(task.slot == task.task_id and task.parent_id is None for task in tasks)


@pytest.mark.parametrize("size", Size)
def test_every_task_has_the_plan_it_names(size: Size) -> None:
    for task in builtin_tasks(TasksConfig(train_scenes=6, tasks_per_scene=3, size=size), seed=3):
        tables = FastGame(game_of(task.payload))
        engine, plan = FastEngine(tables), solve(tables)
        assert not engine.reset().won
        assert plan is not None
        assert len(plan) == task.plan_length
        won = [engine.step(command).won for command in plan]
        assert won == [False] * (len(plan) - 1) + [True]


def test_the_same_seed_gives_the_same_tasks() -> None:
    once = builtin_tasks(TasksConfig(train_scenes=4, tasks_per_scene=2, size="tiny"), seed=1)
    assert once == builtin_tasks(TasksConfig(train_scenes=4, tasks_per_scene=2, size="tiny"), seed=1)
    assert once[:4] == builtin_tasks(TasksConfig(train_scenes=2, tasks_per_scene=2, size="tiny"), seed=1)
    assert once != builtin_tasks(TasksConfig(train_scenes=4, tasks_per_scene=2, size="tiny"), seed=2)


def test_held_out_tasks_share_no_scene_with_training() -> None:
    train = builtin_tasks(TasksConfig(train_scenes=40, tasks_per_scene=1, size="tiny"), seed=0)
    test = builtin_tasks(TasksConfig(test_scenes=40, tasks_per_scene=1, size="tiny"), seed=0, split="test")
    assert not {task.scene for task in train} & {task.scene for task in test}
    facts = [{game_of(task.payload).problem.facts for task in tasks} for tasks in (train, test)]
    assert not facts[0] & facts[1]


def test_kinds_restrict_what_is_drawn() -> None:
    tasks = builtin_tasks(TasksConfig(train_scenes=4, tasks_per_scene=2, size="tiny", kinds=("clean", "heat")), seed=0)
    assert {task.kind for task in tasks} == {TaskKind.CLEAN.value, TaskKind.HEAT.value}
    assert {task.scene.partition("_")[0] for task in tasks} <= {"bathroom", "kitchen"}


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UserError, match="'dance' is unknown"):
        builtin_tasks(TasksConfig(train_scenes=1, tasks_per_scene=1, size="tiny", kinds=("dance",)), seed=0)


def test_legal_goals_worked_out_by_hand() -> None:
    layout = Layout.of(kitchen(("Egg", "CounterTop"), ("Egg", "SinkBasin"), ("Fork", "CounterTop")))
    # An egg lies on the counter and in the sink already; forks fit nowhere but there.
    place = [("Egg", "Fridge"), ("Egg", "Microwave")]
    assert [(g.object_type, g.target_type) for g in layout.legal_goals(TaskKind.PLACE)] == place
    # Clean ones are wanted, so the egg on the counter does not count.
    clean = [("Egg", "CounterTop"), ("Egg", "Fridge"), ("Egg", "Microwave"), ("Fork", "CounterTop")]
    assert [(g.object_type, g.target_type) for g in layout.legal_goals(TaskKind.CLEAN)] == clean
    two = [("Egg", "CounterTop"), ("Egg", "Fridge"), ("Egg", "Microwave")]
    assert [(g.object_type, g.target_type) for g in layout.legal_goals(TaskKind.TWO)] == two
    assert layout.legal_goals(TaskKind.HEAT) == layout.legal_goals(TaskKind.LOOK) == []


@pytest.mark.parametrize(
    ("goal", "reason"),
    [
        (Goal(TaskKind.PLACE, "Mug", "Fridge"), "not enough objects of type Mug within reach"),
        (Goal(TaskKind.PLACE, "Egg", "Sofa"), "there is no Sofa"),
        (Goal(TaskKind.PLACE, "Fork", "Fridge"), "a Fridge cannot contain a Fork"),
        (Goal(TaskKind.TWO, "Egg", "Fridge"), "not enough objects of type Egg"),
        (Goal(TaskKind.HEAT, "Egg", "Fridge"), "Egg is not heatable"),
        (Goal(TaskKind.LOOK, "Egg", "DeskLamp"), "no DeskLamp"),
        (Goal(TaskKind.PLACE, "Egg", "SinkBasin"), "no SinkBasin in the scene that could be a target"),
    ],
)
def test_illegal_goals_are_told_why(goal: Goal, reason: str) -> None:
    layout = Layout.of(kitchen(("Egg", "CounterTop"), ("Fork", "CounterTop")))
    told = layout.why_illegal(goal)
    assert told is not None
    assert reason in told


def test_a_payload_is_read_back_and_a_broken_one_refused() -> None:
    goal = Layout.of(kitchen(("Egg", "CounterTop"))).legal_goals(TaskKind.PLACE)[0]
    problem = replace(generate_scene(seed=0, room=Room.KITCHEN, size=Size.TINY), goal=goal)
    game = Game(problem=problem, sentence="put a egg in fridge.", verbs=Verbs.PUT)
    assert game_of(game.payload()) == game
    for broken in ("", "[]", "{}", '{"problem": 1, "sentence": "", "verbs": "put"}'):
        with pytest.raises(UserError, match="payload"):
            game_of(broken)


def test_identity_is_content_not_order_or_wording() -> None:
    problem = kitchen(("Egg", "CounterTop"), ("Fork", "CounterTop"))
    other = PddlProblem("other", problem.objects[::-1], problem.facts[::-1], problem.goal)
    first = Game(problem, "put a egg in fridge.", Verbs.MOVE)
    second = Game(other, "put some egg on fridge.", Verbs.MOVE)
    assert first.digest() == second.digest()
    assert first.digest() != Game(problem, "put a egg in fridge.", Verbs.PUT).digest()
    hinted = "put a egg in fridge. you can find a egg in countertop 1."
    assert first.digest() != Game(problem, hinted, Verbs.MOVE).digest()
    assert task_from_game(first, split="train", scene="kitchen").task_id == first.digest()


@needs_data
def test_real_games_are_imported_once_and_their_goals_are_legal() -> None:
    tasks = imported_games(files(DATA, limit=40), split="valid_seen")
    assert len({task.task_id for task in tasks}) == 40
    for task in tasks:
        problem = game_of(task.payload).problem
        assert Layout.of(problem).why_illegal(problem.goal) is None
        assert task.scene.startswith("FloorPlan")
        assert (task.kind, task.split) == (problem.goal.kind.value, "valid_seen")


def test_a_folder_without_games_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"game\.tw-pddl"):
        imported_games(files(tmp_path), split="train")
    with pytest.raises(UserError, match="split"):
        imported_games(files(tmp_path), split="../train")
