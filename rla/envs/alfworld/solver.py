"""Ground truth: shortest plans from any state, and labels of steps, which say whether an action helped.

A plan is a *skeleton* of takes, treatments, switches and puts; the moves between locations and the openings follow from
it. Its length is

    steps of the skeleton + changes of location + shut receptacles that it takes from or puts into

and a shortest plan minimises this over few skeletons, which differ in the objects, their sources, the devices, the
targets and the place for an object that is in the hand at first. Of receptacles that are interchangeable one is tried.

A step helps (+1) if the solver's remaining distance to the goal becomes smaller than ever before in the episode, or if
it looks into a likely place for the first time while an object that the goal needs has not been seen. A place is likely
if it holds the object at least `_SHARE_OF_BEST` times as often (`catalog.share`) as the likeliest unvisited place.
Without that condition any order of search would earn the same, and the policy would not learn the likely places.

All other steps do not help (-1): inadmissible commands, looks into unlikely places, returns to known places, steps away
from the goal, and the way back from there. Otherwise an agent that takes an object, puts it back and takes it again
would earn +1 every second step, more than an honest search, and a policy would learn to do so. The reason names the
case.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from random import Random

from rla.envs.alfworld.catalog import share
from rla.envs.alfworld.engine import GO, NOTHING, FastEngine, FastGame, Move, Op, State, apply, legal
from rla.envs.alfworld.expert import random_action
from rla.envs.alfworld.goals import Goal, TaskKind
from rla.envs.observation import offered
from rla.envs.protocols import Labelled

_Skeleton = tuple[Move, ...]

PROGRESS = {
    "go": "it goes where the task needs it",
    "take": "it takes what the task needs",
    "open": "it opens what the task needs",
    "put": "it puts it where the task wants it",
    "move": "it puts it where the task wants it",
}
_TREATS = "it does what the task asks"
LIKELY = "it looks in a likely place"
UNLIKELY = "it looks in an unlikely place"
REFUSED = "nothing happens"
AGAIN = "it has been there"
USELESS = "it does not help"
REASONS = (*dict.fromkeys(PROGRESS.values()), _TREATS, LIKELY, UNLIKELY, REFUSED, AGAIN, USELESS)

_SHARE_OF_BEST = 0.5
WAYS = 6  # `go to` commands among the alternatives to an action


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
    steps: _Skeleton


def _shortest(tables: FastGame, state: State) -> _Skeleton | None:
    match tables.goal.kind:
        case TaskKind.LOOK:
            skeletons = _looking(tables, state)
        case TaskKind.TWO:
            skeletons = _placing_two(tables, state)
        case _:
            skeletons = _placing(tables, state)
    return min(skeletons, key=lambda skeleton: len(list(_moves(tables, state, skeleton))), default=None)


def _moves(tables: FastGame, state: State, skeleton: _Skeleton) -> Iterator[Move]:
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


def _looking(tables: FastGame, state: State) -> Iterator[_Skeleton]:
    """Fetch the object, go to a lamp of the right type, and switch it on if it is off."""
    lamps = [
        Move(Op.GO, place=receptacle) if item in state.toggled else Move(Op.USE, item, receptacle)
        for receptacle, items in enumerate(state.contents)
        for item in items
        if item in tables.lamps and tables.reachable(receptacle)
    ]
    for fetch in _fetches(tables, state):
        for lamp in lamps:
            yield (*fetch.steps, lamp)


def _placing(tables: FastGame, state: State) -> Iterator[_Skeleton]:
    """Fetch the object, treat it if the goal asks for it and it is not done, put it into a target."""
    treatment = tables.treatment
    targets = _distinct_targets(tables, state)
    for fetch in _fetches(tables, state):
        treatments: list[_Skeleton] = [()]
        if treatment is not None and not tables.treated(state, fetch.item):
            devices = filter(tables.reachable, sorted(tables.devices[treatment]))
            treatments = [(Move(treatment, fetch.item, device),) for device in devices]
        # Some scenes list an object in two receptacles: taken out of one, it still counts as being in the other.
        stays = any(fetch.item in state.contents[target] for target in tables.targets if target != fetch.source)
        for treat in treatments:
            if stays:
                yield fetch.steps + treat
                continue
            for target in targets:
                if tables.accepts(target, fetch.item):
                    yield (*fetch.steps, *treat, Move(Op.PUT, fetch.item, target))


def _placing_two(tables: FastGame, state: State) -> Iterator[_Skeleton]:
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
    for receptacle, items in enumerate(state.contents):
        if not items or not tables.reachable(receptacle):
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
    fit = [
        receptacle
        for receptacle in range(len(tables.receptacles))
        if tables.reachable(receptacle) and tables.accepts(receptacle, state.held)
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
    for target in filter(tables.reachable, tables.targets):
        location = tables.location_of[target]
        wanted = tuple(item for item in state.contents[target] if item in tables.wanted)
        near = location if location in places else NOTHING
        sorts.setdefault((near, tables.is_shut(state, target), wanted), target)
    return list(sorts.values())


class Search:
    """An agent's search: the instances of the goal's object type that it has seen, and the places it has visited."""

    def __init__(self, goal: Goal) -> None:
        self._item, self._needed = goal.item, goal.needed
        self._objects = re.compile(rf"\b{re.escape(goal.item)} \d+")
        self._seen: set[str] = set()
        self._visited: set[str] = set()

    def read(self, action: str, observation: str) -> None:
        """Take in an action and its result."""
        self._visited.add(action)
        self._seen.update(self._objects.findall(observation.lower()))

    def judge(self, action: str, commands: Sequence[str]) -> str | None:
        """LIKELY or UNLIKELY if `action` looks into a new place while objects are missing, else None."""
        if not action.startswith((GO, "open ")) or action in self._visited or len(self._seen) >= self._needed:
            return None
        left = (other for other in commands if other.startswith(GO) and other not in self._visited)
        best = max(map(self._chance, left), default=0)
        return LIKELY if self._chance(action) >= _SHARE_OF_BEST * best else UNLIKELY

    def _chance(self, action: str) -> float:
        return share(self._item, action.removeprefix(GO).removeprefix("open ").partition(" ")[0])


def label_steps(
    tables: FastGame, actions: Sequence[str], *, others: int = 0, omit: Collection[str] = (), seed: int = 0
) -> list[list[Labelled]]:
    """Per step the label of its action, followed by the labels of up to `others` alternatives.

    The episode is replayed from the start. Alternatives are offered commands of kinds that are not in `omit`.
    """
    rng, search, engine = Random(seed), Search(tables.goal), FastEngine(tables)
    commands = engine.reset().commands

    @cache  # the state before a step is the one after the step before, and useless steps change nothing
    def distance(state: State) -> float:
        left = remaining(tables, state)
        return inf if left is None else left

    nearest = distance(engine.state)

    def attempt(state: State, action: str) -> Labelled:
        engine.restore(state)
        observation = engine.step(action)
        before, after = distance(state), distance(engine.state)
        verb = action.partition(" ")[0]
        looks = search.judge(action, commands)
        if action not in commands:
            score, reason = -1, REFUSED
        elif after < nearest:
            score, reason = 1, PROGRESS.get(verb, _TREATS)
        elif looks:
            score, reason = (1 if looks == LIKELY else -1), looks
        else:
            idle = verb in ("go", "open", "close", "look", "examine", "inventory")
            score, reason = -1, AGAIN if idle else USELESS
        return Labelled(
            action=action, next_observation=observation.text, score=score, reason=reason, before=before, after=after
        )

    labels = []
    for action in actions:
        state = engine.state
        alternatives: list[Labelled] = []
        if others:
            left = [command for command in offered(commands, omit) if command != action]
            alternatives = contrast(rng, [attempt(state, one) for one in to_compare(rng, left)], others)
        taken = attempt(state, action)
        labels.append([taken, *alternatives])
        search.read(action, taken.next_observation)
        commands = engine.commands()
        nearest = min(nearest, distance(engine.state))
    return labels


def to_compare(rng: Random, commands: Sequence[str]) -> list[str]:
    """All commands except most of the `go to`, which are too many to label: a sample of `WAYS` of them."""
    going = [command for command in commands if command.startswith(GO)]
    return [c for c in commands if not c.startswith(GO)] + sorted(rng.sample(going, min(WAYS, len(going))))


def contrast(rng: Random, labelled: Sequence[Labelled], count: int) -> list[Labelled]:
    """Up to `count` of them in pairs: one that helps and, if possible, one of the same verb that does not.

    In an even draw nine of ten actions that take something take the wrong object, and a judge would learn that taking
    is wrong.
    """
    left = list(labelled)
    kept: list[Labelled] = []
    while left and len(kept) < count:
        wanted = 1 if len(kept) % 2 == 0 else -1
        verb = kept[-1].action.split(" ", 1)[0] if wanted < 0 else ""
        found = [one for one in left if one.score == wanted]
        near = [one for one in found if one.action.split(" ", 1)[0] == verb] or found or left
        names = [one.action for one in near]
        chosen = near[names.index(random_action(rng, names))]
        left.remove(chosen)
        kept.append(chosen)
    return kept
