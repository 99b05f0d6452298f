"""Shortest plans by construction, from any state, without search over states.

A plan is a *skeleton* of takes, treatments, switches and puts; the moves between locations and the openings follow from
it. Its length is

    steps of the skeleton + changes of location + shut receptacles that it takes from or puts into

and a shortest plan minimises this over few skeletons: which objects, from which receptacles, treated where, put where,
and where an object in the hand is laid down first. Of receptacles that are interchangeable one is tried. A plan uses no
withheld command, no place that cannot be reached, and nothing in a shut receptacle if opening is withheld.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rla.envs.alfworld.engine import NOTHING, FastGame, Move, Op, State, apply, legal
from rla.envs.alfworld.goals import TaskKind

Skeleton = tuple[Move, ...]


def solve(tables: FastGame, state: State | None = None) -> list[str] | None:
    """A shortest list of commands from `state` (default: the start) to `won`; None if there is no plan."""
    now = tables.start if state is None else state
    if tables.won(now):
        return []
    skeleton = _shortest(tables, now)
    if skeleton is None:
        return None
    commands = []
    for move in _moves(tables, now, skeleton):
        texts = {operator: text for text, operator in legal(tables, now).items()}
        commands.append(texts[move])
        now = apply(tables, now, move)
    return commands


def remaining(tables: FastGame, state: State) -> int | None:
    """The number of commands in a shortest plan from `state`: 0 iff won, None if there is no plan."""
    if tables.won(state):
        return 0
    skeleton = _shortest(tables, state)
    return None if skeleton is None else len(list(_moves(tables, state, skeleton)))


@dataclass(frozen=True, slots=True)
class _Fetch:
    """Steps after which `item` is in hand; `source` is the receptacle that it was taken from, or NOTHING."""

    item: int
    source: int
    steps: Skeleton


def _shortest(tables: FastGame, state: State) -> Skeleton | None:
    match tables.goal.kind:
        case TaskKind.LOOK:
            skeletons = _looking(tables, state)
        case TaskKind.TWO:
            skeletons = _placing_two(tables, state)
        case _:
            skeletons = _placing(tables, state)
    return min(skeletons, key=lambda skeleton: len(list(_moves(tables, state, skeleton))), default=None)


def _moves(tables: FastGame, state: State, skeleton: Skeleton) -> Iterator[Move]:
    location, opened = state.location, state.opened
    for move in skeleton:
        if tables.location_of[move.place] != location:
            location = tables.location_of[move.place]
            yield Move(Op.GO, place=move.place)
        if move.op in (Op.TAKE, Op.PUT) and move.place in tables.openable and move.place not in opened:
            opened = opened | {move.place}
            yield Move(Op.OPEN, place=move.place)
        if move.op is not Op.GO:
            yield move


def _looking(tables: FastGame, state: State) -> Iterator[Skeleton]:
    """Fetch the object, go to a lamp of the right type, and switch it on if it is off."""
    lamps = [
        Move(Op.GO, place=receptacle) if item in state.toggled else Move(Op.USE, item, receptacle)
        for receptacle, items in enumerate(state.contents)
        for item in items
        if item in tables.lamps
        and tables.reachable(receptacle)
        and (item in state.toggled or Op.USE not in tables.withheld_kinds)
    ]
    for fetch in _fetches(tables, state):
        for lamp in lamps:
            yield (*fetch.steps, lamp)


def _placing(tables: FastGame, state: State) -> Iterator[Skeleton]:
    """Fetch the object, treat it if the goal asks for it and it is not done, put it into a target."""
    treatment = tables.treatment
    targets = _distinct_targets(tables, state)
    for fetch in _fetches(tables, state):
        treatments: list[Skeleton] = [()]
        if treatment is not None and not tables.treated(state, fetch.item):
            devices = [] if treatment in tables.withheld_kinds else sorted(tables.devices[treatment])
            treatments = [(Move(treatment, fetch.item, device),) for device in devices if tables.reachable(device)]
        # Some scenes list an object in two receptacles: taken out of one, it still counts as being in the other.
        stays = any(fetch.item in state.contents[target] for target in tables.targets if target != fetch.source)
        for treat in treatments:
            if stays:
                yield fetch.steps + treat
                continue
            for target in targets:
                if tables.accepts(target, fetch.item):
                    yield (*fetch.steps, *treat, Move(Op.PUT, fetch.item, target))


def _placing_two(tables: FastGame, state: State) -> Iterator[Skeleton]:
    """Bring the missing objects to one target until it holds two."""
    fetches = list(_fetches(tables, state))
    sources = list(_sources(tables, state))
    for target in _distinct_targets(tables, state):
        inside = [item for item in state.contents[target] if item in tables.wanted]
        for fetch in fetches:
            if fetch.item in inside or not tables.accepts(target, fetch.item):
                continue
            first = (*fetch.steps, Move(Op.PUT, fetch.item, target))
            if inside:
                yield first
                continue
            for item, source in _seconds(tables, state, sources, fetch, target):
                yield (*first, Move(Op.TAKE, item, source), Move(Op.PUT, item, target))


def _seconds(
    tables: FastGame, state: State, sources: list[tuple[int, int]], fetch: _Fetch, target: int
) -> Iterator[tuple[int, int]]:
    """The second object: the nearest, and those in receptacles that the first one has opened anyway."""
    others = [(item, source) for item, source in sources if item != fetch.item]
    reached = {step.place for step in fetch.steps}
    yield from (pair for pair in others if pair[1] in reached)

    def detour(pair: tuple[int, int]) -> int:
        away = tables.location_of[pair[1]] != tables.location_of[target]
        return 2 * away + tables.is_shut(state, pair[1])

    if others:
        yield min(others, key=detour)


def _fetches(tables: FastGame, state: State) -> Iterator[_Fetch]:
    """Ways to hold a wanted object: it is in hand already, or the hand is emptied and the object taken."""
    if state.held in tables.wanted:
        yield _Fetch(state.held, NOTHING, ())
    for item, source in _sources(tables, state):
        take = Move(Op.TAKE, item, source)
        if state.held == NOTHING:
            yield _Fetch(item, source, (take,))
        elif item != state.held:
            for receptacle in _drops(tables, state, source):
                yield _Fetch(item, source, (Move(Op.PUT, state.held, receptacle), take))


def _sources(tables: FastGame, state: State) -> Iterator[tuple[int, int]]:
    """(object, receptacle) that can be taken. Two alike objects of a receptacle are enough for any goal."""
    if Op.TAKE in tables.withheld_kinds:
        return
    for receptacle, items in enumerate(state.contents):
        if not items or not tables.usable(state, receptacle):
            continue
        seen = {True: 0, False: 0}
        for item in items:
            if item in tables.wanted and item in tables.pickupable:
                treated = tables.treated(state, item)
                seen[treated] += 1
                if seen[treated] <= 2 or tables.goal.kind is TaskKind.TWO:
                    yield item, receptacle


def _drops(tables: FastGame, state: State, source: int) -> list[int]:
    """Receptacles for the object in hand: here, at `source`, or one open elsewhere; shut ones if none is open."""
    if Op.PUT in tables.withheld_kinds:
        return []
    fit = [
        receptacle
        for receptacle in range(len(tables.receptacles))
        if tables.usable(state, receptacle) and tables.accepts(receptacle, state.held)
    ]
    near = (state.location, tables.location_of[source])
    away = [receptacle for receptacle in fit if tables.location_of[receptacle] not in near]
    unshut = [receptacle for receptacle in away if not tables.is_shut(state, receptacle)]
    return [receptacle for receptacle in fit if tables.location_of[receptacle] in near] + (unshut[:1] or away)


def _distinct_targets(tables: FastGame, state: State) -> list[int]:
    """Targets, one of each sort: same location if it matters, same door, same wanted contents."""
    places = {state.location, *(tables.location_of[source] for _, source in _sources(tables, state))}
    if tables.treatment is not None:
        places.update(tables.location_of[device] for device in tables.devices[tables.treatment])
    sorts: dict[tuple[int, bool, tuple[int, ...]], int] = {}
    for target in tables.targets if Op.PUT not in tables.withheld_kinds else ():
        location = tables.location_of[target]
        if not tables.usable(state, target):
            continue
        wanted = tuple(item for item in state.contents[target] if item in tables.wanted)
        near = location if location in places else NOTHING
        sorts.setdefault((near, tables.is_shut(state, target), wanted), target)
    return list(sorts.values())
