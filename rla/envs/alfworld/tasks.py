"""ALFWorld's tasks: drawn on built-in scenes, or imported from the games of its data folder.

A built-in scene is drawn from the statistics in `catalog`, with ALFRED's ids and facts. Each receptacle stands at a
location (occasionally two share one). Each object lies in a receptacle that may contain it or has a place of its own.
The agent starts at a location without receptacles. Locations are `loc|x|z|rotation|horizon` on a grid of 0.25 m.

Rooms of the training split can be held out, which makes them a split of their own:

    env.own.held_out_rooms: [FloorPlan301]   scenes, by the numbers in the names of the games' folders
    the training split                       its games in all other rooms
    the split `held_out_rooms`               the games of the training split in these rooms
    any other split                          all games of its folder, these rooms included
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from rla.config.sections import TasksConfig
from rla.envs.alfworld import catalog
from rla.envs.alfworld.catalog import ROOMS, Room, share
from rla.envs.alfworld.engine import FastGame
from rla.envs.alfworld.game import ENV, MANGLED, Fact, Game, Layout, PddlProblem, Point, Verbs, mangled, object_facts
from rla.envs.alfworld.goals import VARIANTS, Goal, TaskKind
from rla.envs.alfworld.solver import solve
from rla.errors import UserError
from rla.seeds import derive
from rla.store.records import Task

_ROOMS_OF: dict[TaskKind, tuple[Room, ...]] = {
    TaskKind.PLACE: tuple(Room),
    TaskKind.TWO: tuple(Room),
    TaskKind.CLEAN: (Room.KITCHEN, Room.BATHROOM),
    TaskKind.HEAT: (Room.KITCHEN,),
    TaskKind.COOL: (Room.KITCHEN,),
    TaskKind.LOOK: (Room.BEDROOM, Room.LIVING_ROOM),
}
_TEST = "valid_seen"  # imported for the split `test`, which the data does not have
_ROOMS_SPLIT = "held_out_rooms"
_ROOMS_KEY = f"env.own.{_ROOMS_SPLIT}"
_SKIPPED = ("movable", "Sliced")  # words in the paths of games that ALFWorld itself leaves out
_NEIGHBOURS = frozenset({"Cabinet", "Drawer", "Shelf", "StoveBurner", "HandTowelHolder"})
_NEIGHBOUR_SHARE = 0.08  # of these types' instances share the location of the receptacle before them
_COLUMNS = 7
_NO_GOAL = Goal(TaskKind.PLACE, "", "")


class Size(StrEnum):
    """How large a scene is; `full` follows the real rooms (a kitchen: 33 receptacles, 54 objects)."""

    TINY = "tiny"
    SMALL = "small"
    MEDIUM = "medium"
    FULL = "full"


# (least, most) receptacles and movable objects of all sizes but `full`.
BOUNDS: dict[Size, tuple[tuple[int, int], tuple[int, int]]] = {
    Size.TINY: ((5, 8), (6, 10)),
    Size.SMALL: ((8, 12), (11, 18)),
    Size.MEDIUM: ((12, 20), (19, 32)),
}


@dataclass(slots=True)
class _Room:
    """A room under construction: ids with their type, receptacle, location and position."""

    receptacles: dict[str, str] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    location: dict[str, str] = field(default_factory=dict)
    point: dict[str, Point] = field(default_factory=dict)
    openable: list[str] = field(default_factory=list)
    slots: int = 0

    def new_location(self, rng: random.Random) -> tuple[Point, str]:
        """The next free square: a point in it and the location in front of it."""
        column, row = self.slots % _COLUMNS, self.slots // _COLUMNS
        self.slots += 1
        x = column - _COLUMNS / 2 + rng.randint(-20, 20) / 100
        z = row - 3.5 + rng.randint(-20, 20) / 100
        y = rng.randint(10, 180) / 100
        turn, tilt = rng.randrange(4), rng.choice((-30, 0, 30, 45, 60))
        return (x, y, z), f"loc|{4 * column - 14}|{4 * row - 14}|{turn}|{tilt}".translate(MANGLED)

    def add_receptacle(self, rng: random.Random, kind: str) -> None:
        point, location = self.new_location(rng)
        last = next(reversed(self.receptacles), None)
        if last is not None and kind in _NEIGHBOURS and rng.random() < _NEIGHBOUR_SHARE:
            location = self.location[last]
        basin = catalog.BASINS.get(kind)
        identifier = mangled(basin, point, kind) if basin else mangled(kind, point)
        self.receptacles[identifier] = kind
        self.location[identifier] = location
        self.point[identifier] = point
        if rng.random() < catalog.OPENABLE.get(kind, 0.0):
            self.openable.append(identifier)

    def add_object(self, rng: random.Random, kind: str) -> None:
        """Add an object in a receptacle drawn by `share`, else at its basin, else at a location of its own."""
        homes = _homes(kind, set(self.receptacles.values()))
        places = [name for name, of in self.receptacles.items() if of in homes]
        basin = next((n for n, of in self.receptacles.items() if catalog.BASINS.get(of) == kind), None)
        home = None
        if places:
            home = rng.choices(places, [share(kind, self.receptacles[place]) for place in places])[0]
            point, location = self.point[home], self.location[home]
        elif basin is not None:
            point, location = self.point[basin], self.location[basin]
        else:
            point, location = self.new_location(rng)
        identifier = mangled(kind, point)
        while identifier in self.objects or identifier in self.receptacles:
            x, y, z = (value + rng.randint(-30, 30) / 100 for value in point)
            identifier = mangled(kind, (x, y, z))
        self.objects[identifier] = kind
        self.location[identifier] = location
        if home is not None:
            self.inside[identifier] = home


def generate_scene(*, seed: int, room: Room, size: Size) -> PddlProblem:
    """The scene of this seed, room and size, without a goal: a pure function that takes about a millisecond."""
    rng = random.Random(f"alfworld scene {room.value} {size.value} {seed}")
    built = _Room()
    for kind in _receptacle_types(rng, room, size):
        built.add_receptacle(rng, kind)
    for kind in _object_types(rng, room, size, set(built.receptacles.values())):
        built.add_object(rng, kind)
    start = built.new_location(rng)[1]
    rtypes, otypes = sorted(set(built.receptacles.values())), sorted(set(built.objects.values()))
    objects = (
        ("agent1", "agent"),
        *((name, "object") for name in built.objects),
        *((f"{kind}Type", "otype") for kind in otypes),
        *((f"{kind}Type", "rtype") for kind in rtypes),
        *((name, "receptacle") for name in built.receptacles),
        *((name, "location") for name in sorted({*built.location.values(), start})),
    )
    facts: list[Fact] = [("receptacleType", name, f"{kind}Type") for name, kind in built.receptacles.items()]
    for kind in rtypes:
        held = catalog.CAN_CONTAIN.get(kind, frozenset())
        facts.extend(("canContain", f"{kind}Type", f"{item}Type") for item in otypes if item in held)
    facts.extend(("openable", name) for name in built.openable)
    facts.extend(("receptacleAtLocation", name, built.location[name]) for name in built.receptacles)
    facts.append(("atLocation", "agent1", start))
    for name, kind in built.objects.items():
        facts.extend(object_facts(name, kind, receptacle=built.inside.get(name), location=built.location[name]))
    name = f"{room.value}_{size.value}_{seed:x}".replace("_", "-")
    return PddlProblem(name=name, objects=objects, facts=tuple(facts), goal=_NO_GOAL)


def _receptacle_types(rng: random.Random, room: Room, size: Size) -> list[str]:
    table = ROOMS[room]
    if size is Size.FULL:
        kinds = [kind for kind, counted in table.receptacles.items() for _ in range(_count(rng, *counted))]
        return kinds + [kind for kind in table.essential if kind not in kinds]
    least, most = BOUNDS[size][0]
    kinds = list(table.essential)
    names = sorted(table.receptacles)
    weights = [share * count for share, count in map(table.receptacles.__getitem__, names)]
    for kind in rng.choices(names, weights, k=rng.randint(least, most) - len(kinds)):
        single = table.receptacles[kind][1] < 1.05
        kinds.append("Cabinet" if single and kind in kinds else kind)
    return kinds


def _object_types(rng: random.Random, room: Room, size: Size, standing: set[str]) -> list[str]:
    """Types with repetition: essential fixtures, then movable objects, in full scenes also the room's other objects."""
    table = ROOMS[room]
    basins = [basin for kind, basin in catalog.BASINS.items() if kind in standing]
    fixtures = list(dict.fromkeys([*table.fixtures, *basins]))
    if size is Size.FULL:
        drawn = [kind for kind, counted in table.objects.items() for _ in range(_count(rng, *counted))]
        kinds = drawn + [kind for kind in fixtures if kind not in drawn]
        return [kind for kind in kinds if _homes(kind, standing) or kind not in catalog.STANDS]
    # Small scenes leave out objects that no receptacle can contain: they could never be put down again.
    lost = catalog.FIXED | catalog.STANDS.keys()
    names = sorted(kind for kind in table.objects if kind not in lost and _homes(kind, standing))
    weights = [table.objects[name][0] for name in names]
    wanted = rng.randint(*BOUNDS[size][1])
    movable: Counter[str] = Counter()
    while movable.total() < wanted:
        kind = rng.choices(names, weights)[0]
        if not movable[kind] or size is not Size.TINY:
            movable[kind] += min(rng.choice((1, 2, 2, 3)), wanted - movable.total())
    return fixtures + list(movable.elements())


def _count(rng: random.Random, share: float, count: float) -> int:
    """0 with probability 1 - share, else 1 + a binomial with mean `count` - 1."""
    if rng.random() >= share:
        return 0
    trials = max(2, round(2 * (count - 1)))
    return 1 + sum(rng.random() < (count - 1) / trials for _ in range(trials))


def _homes(kind: str, standing: set[str]) -> list[str]:
    """The receptacle types among `standing` in which an object of type `kind` may start."""
    if kind in catalog.STANDS:
        return sorted(standing & catalog.STANDS[kind])
    if kind in catalog.FREE_STANDING:
        return []
    return sorted(home for home in standing if kind in catalog.CAN_CONTAIN.get(home, ()))


def builtin_tasks(config: TasksConfig, *, seed: int, split: str = "train") -> list[Task]:
    """As many solvable tasks as `config` asks for (fewer if a scene offers fewer goals) with balanced kinds.

    A kind is named by its value ("pick_and_place_simple") or its short name ("place"). Held-out scenes come from a
    random stream of their own, so they are never training scenes of this or another seed. Raises UserError for an
    unknown kind.
    """
    kinds = config.kinds_of(split)
    known = {kind.value: kind for kind in TaskKind} | {kind.name.lower(): kind for kind in TaskKind}
    if unknown := [name for name in kinds if name not in known]:
        raise UserError(f"tasks.kinds: {unknown[0]!r} is unknown; choose from {', '.join(TaskKind)}")
    wanted = list(dict.fromkeys(known[name] for name in kinds)) or list(TaskKind)
    stream = "held out" if config.held_out(split) else "training"
    drawn: Counter[TaskKind] = Counter()
    tasks: list[Task] = []
    for number in range(config.scenes(split)):
        rng = random.Random(derive("alfworld tasks", stream, seed, number))
        first = _rarest(rng, drawn, wanted)
        scene_seed = derive("alfworld scene", stream, seed, number)
        scene = generate_scene(seed=scene_seed, room=rng.choice(_ROOMS_OF[first]), size=Size(config.size))
        tasks.extend(_scene_tasks(rng, scene, wanted, drawn, count=config.tasks_per_scene, split=split))
    return tasks


def _scene_tasks(
    rng: random.Random, scene: PddlProblem, kinds: list[TaskKind], drawn: Counter[TaskKind], *, count: int, split: str
) -> list[Task]:
    """Up to `count` tasks with different goals, of the kinds drawn least so far; updates `drawn`."""
    layout = Layout.of(scene)
    left = {kind: layout.legal_goals(kind) for kind in kinds}
    tasks: list[Task] = []
    while len(tasks) < count and any(left.values()):
        kind = _rarest(rng, drawn, [kind for kind, goals in left.items() if goals])
        goal = left[kind].pop(rng.randrange(len(left[kind])))
        text = goal.sentence(rng.randrange(VARIANTS))
        game = Game(problem=replace(scene, goal=goal), sentence=text, verbs=Verbs.MOVE)
        plan = solve(FastGame(game))
        if plan is None:
            continue
        drawn[kind] += 1
        tasks.append(task_from_game(game, split=split, scene=scene.name.replace("-", "_"), plan_length=len(plan)))
    return tasks


def _rarest(rng: random.Random, drawn: Counter[TaskKind], kinds: list[TaskKind]) -> TaskKind:
    least = min(drawn[kind] for kind in kinds)
    return rng.choice([kind for kind in kinds if drawn[kind] == least])


def task_from_game(game: Game, *, split: str, scene: str, **columns: Any) -> Task:
    """The task row of `game`; `columns` are further fields of `Task`. Without `slot` it is its own root."""
    task_id = game.digest()
    return Task(
        task_id=task_id,
        env=ENV,
        split=split,
        kind=game.problem.goal.kind.value,
        scene=scene,
        instruction=game.sentence,
        payload=game.payload(),
        **{"slot": task_id} | columns,
    )


def check_rooms(tasks: TasksConfig, rooms: Collection[str]) -> None:
    """Raise UserError if rooms cannot be held out, or if the split of held-out rooms is asked for without rooms."""
    if rooms and not tasks.path:
        raise UserError(f"{_ROOMS_KEY}: built-in scenes are drawn anew by each seed; set tasks.path or leave it empty")
    if _ROOMS_SPLIT in tasks.test_splits and not rooms:
        raise UserError(
            f"{_ROOMS_KEY} is empty, and {_ROOMS_SPLIT} is a held-out split; name rooms such as FloorPlan301"
        )
    if tasks.train_split == _ROOMS_SPLIT:
        raise UserError(f"tasks.train_split: {_ROOMS_SPLIT} is what {_ROOMS_KEY} holds out; it cannot train")


def imported_games(tasks: TasksConfig, *, split: str, rooms: Collection[str] = ()) -> list[Task]:
    """The solvable games of a split of the data at `tasks.path`, duplicates left out, in the order of their paths.

    The folder holds `json_2.1.x/<split>/` or `<split>/`; the split `test` is the data's `valid_seen`. Raises UserError
    if there is no game, a file is not one, or a room in `rooms` (held out) is not in the training split.
    """
    folder, train = Path(tasks.path or ""), tasks.train_split
    split = _TEST if split == "test" else split
    paths = _game_files(folder, train if split == _ROOMS_SPLIT else split)
    if split in (train, _ROOMS_SPLIT):
        plans = {path: _floor_plan(path) for path in paths}
        if absent := [room for room in rooms if room not in plans.values()]:  # a misspelt room would hold nothing out
            raise UserError(
                f"{_ROOMS_KEY}: {folder / train} has no game in {absent[0]!r}; name rooms such as FloorPlan301"
            )
        paths = [path for path, plan in plans.items() if (plan in rooms) == (split == _ROOMS_SPLIT)]
    found: dict[str, Task] = {}
    for path in paths:
        if tasks.limit is not None and len(found) >= tasks.limit:
            break
        if _solvable(path):
            task = task_from_game(Game.load(path), split=split, scene=_floor_plan(path))
            found.setdefault(task.task_id, task)
    return list(found.values())


def _game_files(folder: Path, split: str) -> list[Path]:
    parts = Path(split).parts
    if len(parts) != 1 or parts[0] in (".", "..", "/"):
        raise UserError(f"tasks: {split!r} is not the name of a split folder such as train or valid_seen")
    roots = [root for root in (folder, *sorted(folder.glob("json_*"), reverse=True)) if (root / split).is_dir()]
    found = sorted(roots[0].joinpath(split).glob("*/*/game.tw-pddl")) if roots else []
    files = [path for path in found if not any(word in str(path.relative_to(roots[0])) for word in _SKIPPED)]
    if not files:
        raise UserError(
            f"{folder / split}: no */*/game.tw-pddl in it; set tasks.path (--from) to the folder that holds "
            f"json_2.1.1/{split}/ or {split}/"
        )
    return files


def _solvable(path: Path) -> bool:
    """Whether the file says that its game has a plan. A file that is not a game is left to `Game.load` to refuse."""
    try:
        return json.loads(path.read_bytes()).get("solvable") is True
    except (ValueError, AttributeError):
        return True


def _floor_plan(path: Path) -> str:
    """`FloorPlan301` of a game: folder names end in the scene's number (or a built-in scene's id)."""
    scene = path.parent.parent.name.rpartition("-")[2]
    return f"FloorPlan{int(scene)}" if scene.isdecimal() else scene
