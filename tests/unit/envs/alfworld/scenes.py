"""A kitchen small enough to know by heart, and a way to write down another.

location 1: countertop 1 (mug 2, apple 1, knife 1)
location 2: cabinet 1 and cabinet 2, both with doors, shut; mug 1 is in cabinet 1
location 3: sinkbasin 1            location 4: microwave 1 (door, shut)
location 5: fridge 1 (door, shut)  location 6: sidetable 1 (desklamp 1)
location 9: the agent; nothing stands there
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rla.config.sections import TasksConfig
from rla.envs.alfworld.game import Game, PddlProblem, Verbs, game_of
from rla.envs.alfworld.goals import Goal, TaskKind
from rla.envs.alfworld.tasks import builtin_tasks
from rla.store.records import Task

CAN_CONTAIN = {
    "CounterTop": ("Mug", "Apple", "Knife"),
    "Cabinet": ("Mug",),
    "SinkBasin": ("Mug", "Apple", "Knife"),
    "Microwave": ("Mug", "Apple"),
    "Fridge": ("Mug", "Apple"),
    "SideTable": ("Mug",),
}
OPENABLE = ("Cabinet", "Microwave", "Fridge")
ABILITIES = {
    "pickupable": ("Mug", "Apple", "Knife"),
    "cleanable": ("Mug", "Apple", "Knife"),
    "heatable": ("Mug", "Apple"),
    "coolable": ("Mug", "Apple"),
    "sliceable": ("Apple",),
    "toggleable": ("DeskLamp",),
    "isReceptacleObject": ("Mug",),
}
KITCHEN: Mapping[str, int] = {
    "CounterTop_bar_1": 1,
    "Cabinet_bar_2": 2,
    "Cabinet_bar_1": 2,
    "Sink_bar_1_bar_SinkBasin": 3,
    "Microwave_bar_1": 4,
    "Fridge_bar_1": 5,
    "SideTable_bar_1": 6,
}
LYING: Sequence[tuple[str, str]] = (
    ("Mug_bar_1", "CounterTop_bar_1"),
    ("Apple_bar_1", "CounterTop_bar_1"),
    ("Knife_bar_1", "CounterTop_bar_1"),
    ("Mug_bar_2", "Cabinet_bar_2"),
    ("DeskLamp_bar_1", "SideTable_bar_1"),
)
START = 9


def kind_of(identifier: str) -> str:
    return "SinkBasin" if identifier.endswith("SinkBasin") else identifier.partition("_bar_")[0]


def problem(
    goal: Goal,
    *,
    receptacles: Mapping[str, int] = KITCHEN,
    lying: Sequence[tuple[str, str]] = LYING,
    extra: Iterable[tuple[str, ...]] = (),
    start: int = START,
) -> PddlProblem:
    """The kitchen, or another scene of its types. The first sorted id of a type has the highest number."""
    items = sorted({item for item, _ in lying})
    places = sorted({*receptacles.values(), start})
    facts: list[tuple[str, ...]] = []
    facts += [("receptacleType", r, f"{kind_of(r)}Type") for r in receptacles]
    facts += [("receptacleAtLocation", r, f"loc_bar_{place}") for r, place in receptacles.items()]
    facts += [("openable", r) for r in receptacles if kind_of(r) in OPENABLE]
    facts += [("objectType", item, f"{kind_of(item)}Type") for item in items]
    facts += [("inReceptacle", item, r) for item, r in lying]
    facts += [("objectAtLocation", item, f"loc_bar_{receptacles[r]}") for item, r in lying]
    facts += [(able, item) for able, kinds in ABILITIES.items() for item in items if kind_of(item) in kinds]
    facts += [("canContain", f"{r}Type", f"{o}Type") for r, held in CAN_CONTAIN.items() for o in held]
    facts += [("atLocation", "agent1", f"loc_bar_{start}"), *extra]
    object_types = {*ABILITIES["pickupable"], "DeskLamp"}
    objects = [
        ("agent1", "agent"),
        *((f"{name}Type", "otype") for name in sorted(object_types)),
        *((f"{name}Type", "rtype") for name in CAN_CONTAIN),
        *((item, "object") for item in items),
        *((r, "receptacle") for r in receptacles),
        *((f"loc_bar_{place}", "location") for place in places),
    ]
    return PddlProblem(name="kitchen", objects=tuple(objects), facts=tuple(facts), goal=goal)


def game(
    kind: TaskKind = TaskKind.PLACE,
    item: str = "Mug",
    target: str = "SideTable",
    *,
    verbs: Verbs = Verbs.PUT,
    sentence: str = "put a mug in sidetable.",
    receptacles: Mapping[str, int] = KITCHEN,
    lying: Sequence[tuple[str, str]] = LYING,
    extra: Iterable[tuple[str, ...]] = (),
    start: int = START,
) -> Game:
    made = problem(Goal(kind, item, target), receptacles=receptacles, lying=lying, extra=extra, start=start)
    return Game(problem=made, sentence=sentence, verbs=verbs)


def drawn(kind: TaskKind, room: str = "") -> Task:
    """A built-in task of this kind, in this room if one is given."""
    tasks = builtin_tasks(TasksConfig(train_scenes=9, tasks_per_scene=1, size="small", kinds=(kind.value,)), seed=8)
    return next(task for task in tasks if task.scene.startswith(room))


def write_game(place: Path, task: Task) -> None:
    """The task as a `game.tw-pddl` of the folder `place`, without the grammar that only the stock engine reads."""
    game = game_of(task.payload)
    grammar = f'action PutObject {{ template :: "{game.verbs} {{o}}" }} '
    grammar += f'"task": [ {{ "rhs" : "Your task is to: {game.sentence}" }} ]'
    place.mkdir(parents=True)
    content = {"pddl_problem": game.problem.pddl(), "grammar": grammar, "solvable": True}
    (place / "game.tw-pddl").write_text(json.dumps(content))
