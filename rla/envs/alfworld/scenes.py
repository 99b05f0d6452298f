"""Built-in scenes: rooms drawn from the statistics in `catalog`, with ALFRED's ids and facts.

Each receptacle stands at a location (occasionally two share one). Each object lies in a receptacle that may contain it
or has a place of its own. The agent starts at a location without receptacles. Ids are ALFRED's mangled form of
`Mug|+00.38|+00.92|-01.24`; locations are `loc|x|z|rotation|horizon` on a grid of 0.25 m.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from rla.envs.alfworld import catalog
from rla.envs.alfworld.catalog import ROOMS, Room, share
from rla.envs.alfworld.game import Fact, PddlProblem
from rla.envs.alfworld.goals import Goal

Point = tuple[float, float, float]

_NEIGHBOURS = frozenset({"Cabinet", "Drawer", "Shelf", "StoveBurner", "HandTowelHolder"})
_NEIGHBOUR_SHARE = 0.08  # of these types' instances share the location of the receptacle before them
_COLUMNS = 7
_MANGLED = str.maketrans({"|": "_bar_", "+": "_plus_", "-": "_minus_", ".": "_dot_"})


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


@dataclass(frozen=True, slots=True)
class Scene:
    """A room without a goal; `objects` and `facts` as in `PddlProblem`."""

    scene_id: str
    objects: tuple[tuple[str, str], ...]
    facts: tuple[Fact, ...]

    def problem(self, goal: Goal) -> PddlProblem:
        return PddlProblem(self.scene_id.replace("_", "-"), objects=self.objects, facts=self.facts, goal=goal)


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
        return (x, y, z), f"loc|{4 * column - 14}|{4 * row - 14}|{turn}|{tilt}".translate(_MANGLED)

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


def generate_scene(*, seed: int, room: Room, size: Size) -> Scene:
    """The scene of this seed, room and size: a pure function that takes about a millisecond."""
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
    scene_id = f"{room.value}_{size.value}_{seed:x}"
    return Scene(scene_id=scene_id, objects=objects, facts=tuple(facts))


def object_facts(identifier: str, kind: str, *, receptacle: str | None, location: str) -> list[Fact]:
    """The facts of an object of type `kind`, except `canContain`."""
    facts: list[Fact] = [("objectType", identifier, f"{kind}Type")]
    if kind not in catalog.FIXED:
        facts.append(("pickupable", identifier))
    facts.extend((name, identifier) for name, types in catalog.CAPABILITIES.items() if kind in types)
    if receptacle is not None:
        facts.append(("inReceptacle", identifier, receptacle))
    return [*facts, ("objectAtLocation", identifier, location)]


def mangled(kind: str, point: Point, basin: str = "") -> str:
    """ALFRED's id of a thing at `point`: `Sink|+01.00|+00.80|-00.25|SinkBasin` in the letters of PDDL."""
    parts = [kind, *(f"{value:+06.2f}" for value in point), *([basin] if basin else [])]
    return "|".join(parts).translate(_MANGLED)


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
