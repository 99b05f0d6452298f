"""Built-in scenes: rooms drawn from the catalogue's statistics, with ALFRED's ids and facts, the same for
the same seed.

Every receptacle stands at a location (now and then two share one), every object lies in a receptacle that
may contain it or is fixed to a place of its own, and the agent starts where nothing stands. Ids are ALFRED's
mangled form of `Mug|+00.38|+00.92|-01.24`; locations are `loc|x|z|rotation|horizon` on a grid of 0.25 m.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from rla.envs.alfworld import catalog
from rla.envs.alfworld.catalog import ROOMS, Room, Stock
from rla.envs.alfworld.goals import Goal
from rla.envs.alfworld.priors import share
from rla.envs.alfworld.problem import PddlProblem

Fact = tuple[str, ...]
Point = tuple[float, float, float]

SHARED = frozenset({"Cabinet", "Drawer", "Shelf", "StoveBurner", "HandTowelHolder"})
SHARED_SHARE = 0.08
COLUMNS = 7
CAPABILITIES = (
    ("isReceptacleObject", catalog.VESSELS),
    ("cleanable", catalog.CLEANABLE),
    ("heatable", catalog.HEATABLE),
    ("coolable", catalog.COOLABLE),
    ("toggleable", catalog.TOGGLEABLE),
    ("sliceable", catalog.SLICEABLE),
)
_MANGLED = str.maketrans({"|": "_bar_", "+": "_plus_", "-": "_minus_", ".": "_dot_"})


class Size(StrEnum):
    """How large a scene is; `full` follows the real rooms (a kitchen: 33 receptacles, 54 objects)."""

    TINY = "tiny"
    SMALL = "small"
    MEDIUM = "medium"
    FULL = "full"


BOUNDS: dict[Size, tuple[tuple[int, int], tuple[int, int]]] = {
    Size.TINY: ((5, 8), (6, 10)),
    Size.SMALL: ((8, 12), (11, 18)),
    Size.MEDIUM: ((12, 20), (19, 32)),
}
"""(least, most) receptacles and movable objects of the sizes that are not `full`."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A room without a goal. `objects` and `facts` as in `Problem`."""

    scene_id: str
    room: Room
    size: Size
    objects: tuple[tuple[str, str], ...]
    facts: tuple[Fact, ...]

    def problem(self, goal: Goal) -> PddlProblem:
        name = self.scene_id.replace("_", "-")
        return PddlProblem(name=name, objects=self.objects, facts=self.facts, goal=goal)


@dataclass(slots=True)
class _Room:
    """What has been set up so far: ids with their type, place and position."""

    receptacles: dict[str, str] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    location: dict[str, str] = field(default_factory=dict)
    point: dict[str, Point] = field(default_factory=dict)
    openable: list[str] = field(default_factory=list)
    slots: int = 0


def generate_scene(*, seed: int, room: Room, size: Size) -> Scene:
    """The scene of this seed, room and size: a pure function, about a millisecond."""
    rng = random.Random(f"alfworld scene {room.value} {size.value} {seed}")
    built = _Room()
    for kind in _receptacle_types(rng, room, size):
        _add_receptacle(rng, built, kind)
    for kind in _object_types(rng, room, size, set(built.receptacles.values())):
        _add_object(rng, built, kind)
    start = _new_location(rng, built)[1]
    return Scene(
        scene_id=f"{room.value}_{size.value}_{seed:x}",
        room=room,
        size=size,
        objects=_declarations(built, start),
        facts=_facts(built, start),
    )


def object_facts(identifier: str, kind: str, *, receptacle: str | None, location: str) -> list[Fact]:
    """The facts that an object of type `kind` brings, except `canContain`."""
    facts: list[Fact] = [("objectType", identifier, f"{kind}Type")]
    if kind not in catalog.FIXED:
        facts.append(("pickupable", identifier))
    facts.extend((name, identifier) for name, types in CAPABILITIES if kind in types)
    if receptacle is not None:
        facts.append(("inReceptacle", identifier, receptacle))
    facts.append(("objectAtLocation", identifier, location))
    return facts


def mangled(kind: str, point: Point, basin: str = "") -> str:
    """ALFRED's id of a thing at `point`: `Sink|+01.00|+00.80|-00.25|SinkBasin` in PDDL's letters."""
    parts = [kind, *(f"{value:+06.2f}" for value in point), *([basin] if basin else [])]
    return "|".join(parts).translate(_MANGLED)


def _receptacle_types(rng: random.Random, room: Room, size: Size) -> list[str]:
    table = ROOMS[room]
    if size is Size.FULL:
        kinds = [kind for kind, stock in table.receptacles.items() for _ in range(_count(rng, stock))]
        counts = Counter(kinds)
        return kinds + [kind for kind in table.essential if not counts[kind]]
    least, most = BOUNDS[size][0]
    kinds = list(table.essential)
    names = sorted(table.receptacles)
    weights = [table.receptacles[name].share * table.receptacles[name].count for name in names]
    for kind in rng.choices(names, weights, k=rng.randint(least, most) - len(kinds)):
        single = table.receptacles[kind].count < 1.05
        kinds.append("Cabinet" if single and kind in kinds else kind)
    return kinds


def _object_types(rng: random.Random, room: Room, size: Size, standing: set[str]) -> list[str]:
    """Types with repetition: the essential fixtures, then movables (and in full scenes the room's other
    things).
    """
    table = ROOMS[room]
    basins = [basin for kind, basin in catalog.BASINS.items() if kind in standing]
    fixtures = list(dict.fromkeys([*table.fixtures, *basins]))
    if size is Size.FULL:
        drawn = [kind for kind, stock in table.objects.items() for _ in range(_count(rng, stock))]
        kinds = drawn + [kind for kind in fixtures if kind not in drawn]
        return [kind for kind in kinds if _homes(kind, standing) or kind not in catalog.STANDS]
    # What no receptacle can contain could never be put down again: it stays out of small scenes.
    lost = catalog.FIXED | catalog.STANDS.keys()
    names = sorted(kind for kind in table.objects if kind not in lost and _homes(kind, standing))
    weights = [table.objects[name].share for name in names]
    wanted = rng.randint(*BOUNDS[size][1])
    movable: Counter[str] = Counter()
    while movable.total() < wanted:
        kind = rng.choices(names, weights)[0]
        if not movable[kind] or size is not Size.TINY:
            movable[kind] += min(rng.choice((1, 2, 2, 3)), wanted - movable.total())
    return fixtures + list(movable.elements())


def _count(rng: random.Random, stock: Stock) -> int:
    """0 with probability 1 - share, else 1 + a binomial whose mean is `count` - 1."""
    if rng.random() >= stock.share:
        return 0
    trials = max(2, round(2 * (stock.count - 1)))
    return 1 + sum(rng.random() < (stock.count - 1) / trials for _ in range(trials))


def _homes(kind: str, standing: set[str]) -> list[str]:
    """The receptacle types among `standing` in which an object of type `kind` may start."""
    if kind in catalog.STANDS:
        return sorted(standing.intersection(catalog.STANDS[kind]))
    if kind in catalog.FREE_STANDING:
        return []
    return sorted(home for home in standing if kind in catalog.CAN_CONTAIN.get(home, ()))


def _new_location(rng: random.Random, built: _Room) -> tuple[Point, str]:
    """The next free square: a point in it and the location in front of it."""
    column, row = built.slots % COLUMNS, built.slots // COLUMNS
    built.slots += 1
    x = column - COLUMNS / 2 + rng.randint(-20, 20) / 100
    z = row - 3.5 + rng.randint(-20, 20) / 100
    y = rng.randint(10, 180) / 100
    turn, tilt = rng.randrange(4), rng.choice((-30, 0, 30, 45, 60))
    return (x, y, z), f"loc|{4 * column - 14}|{4 * row - 14}|{turn}|{tilt}".translate(_MANGLED)


def _add_receptacle(rng: random.Random, built: _Room, kind: str) -> None:
    point, location = _new_location(rng, built)
    last = next(reversed(built.receptacles), None)
    if last is not None and kind in SHARED and rng.random() < SHARED_SHARE:
        location = built.location[last]
    basin = catalog.BASINS.get(kind)
    identifier = mangled(basin, point, kind) if basin else mangled(kind, point)
    built.receptacles[identifier] = kind
    built.location[identifier] = location
    built.point[identifier] = point
    if rng.random() < catalog.OPENABLE.get(kind, 0.0):
        built.openable.append(identifier)


def _add_object(rng: random.Random, built: _Room, kind: str) -> None:
    """Puts one more `kind` into a receptacle drawn by how often it holds one, beside its basin, or on a
    square of its own.
    """
    homes = _homes(kind, set(built.receptacles.values()))
    places = [name for name, of in built.receptacles.items() if of in homes]
    basin = next((n for n, of in built.receptacles.items() if catalog.BASINS.get(of) == kind), None)
    if places:
        weights = [share(kind, built.receptacles[place]) for place in places]
        home = rng.choices(places, weights)[0]
        point, location = built.point[home], built.location[home]
    elif basin is not None:
        home, point, location = None, built.point[basin], built.location[basin]
    else:
        home, (point, location) = None, _new_location(rng, built)
    identifier = mangled(kind, point)
    while identifier in built.objects or identifier in built.receptacles:
        x, y, z = (value + rng.randint(-30, 30) / 100 for value in point)
        identifier = mangled(kind, (x, y, z))
    built.objects[identifier] = kind
    built.location[identifier] = location
    if home is not None:
        built.inside[identifier] = home


def _declarations(built: _Room, start: str) -> tuple[tuple[str, str], ...]:
    rtypes, otypes = sorted(set(built.receptacles.values())), sorted(set(built.objects.values()))
    locations = sorted({*built.location.values(), start})
    return (
        ("agent1", "agent"),
        *((name, "object") for name in built.objects),
        *((f"{kind}Type", "otype") for kind in otypes),
        *((f"{kind}Type", "rtype") for kind in rtypes),
        *((name, "receptacle") for name in built.receptacles),
        *((name, "location") for name in locations),
    )


def _facts(built: _Room, start: str) -> tuple[Fact, ...]:
    otypes = sorted(set(built.objects.values()))
    facts: list[Fact] = [("receptacleType", name, f"{kind}Type") for name, kind in built.receptacles.items()]
    for kind in sorted(set(built.receptacles.values())):
        held = catalog.CAN_CONTAIN.get(kind, frozenset())
        facts.extend(("canContain", f"{kind}Type", f"{item}Type") for item in otypes if item in held)
    facts.extend(("openable", name) for name in built.openable)
    facts.extend(("receptacleAtLocation", name, built.location[name]) for name in built.receptacles)
    facts.append(("atLocation", "agent1", start))
    for name, kind in built.objects.items():
        facts.extend(object_facts(name, kind, receptacle=built.inside.get(name), location=built.location[name]))
    return tuple(facts)
