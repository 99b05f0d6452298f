"""Structured task edits: applied to a game's facts, and proven to give a legal, new and solvable game.

`apply_edit` renders everything itself (ids, facts, goal, sentence, hints), so nothing that a model wrote
reaches the game. `verify` is the gate: the goal is legal and not yet true, the content differs from parent,
root and every other task, and the solver's plan, replayed in the fast engine, wins. Both raise `InvalidEdit`
with a reason that can be told.

`EngineProof` is the second proof: the plan is replayed to `won` in the stock engine, in a process of its own. It costs
seconds where `verify` costs milliseconds, so it comes last. An engine that dies over a task refuses that task only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec

from rla.config import Config
from rla.envs.alfworld import catalog
from rla.envs.alfworld.edit_format import Add, Edit, InvalidEdit, MoveEdit
from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.alfworld.games import household_params, tables_for
from rla.envs.alfworld.goals import Goal, Hint, TaskKind, hint_of, hint_sentences, sentence, variant_of
from rla.envs.alfworld.layout import Layout, layout_of, why_illegal
from rla.envs.alfworld.problem import Game, PddlProblem, Verbs, display_names
from rla.envs.alfworld.scenes import mangled, object_facts
from rla.envs.alfworld.solver import solve
from rla.envs.alfworld.tables import withheld_place
from rla.envs.alfworld.tasks import game_digest, game_likeness
from rla.envs.observation import AwaitedEnvironment, EnvironmentFailure
from rla.envs.pool.hosting import recipe_of
from rla.envs.pool.pool import EnvironmentPool
from rla.errors import UserError
from rla.plugins import from_checkout
from rla.store.records import Task, content_id

TREATING = {
    "clean": ("cleanable", ("SinkBasin", "Sink")),
    "heat": ("heatable", ("Microwave",)),
    "cool": ("coolable", ("Fridge",)),
}
KNIVES = ("Knife", "ButterKnife")


def changed_offer(game: Game, edit: Edit, *, ids: Mapping[str, str], layout: Layout) -> tuple[str, ...]:
    """The commands that the game withholds after the edit, sorted. Raises `InvalidEdit`."""
    before, taken, given = set(game.withheld), edit.withhold, edit.give
    if len({*taken, *given}) != len(taken) + len(given):
        raise InvalidEdit("a command is withheld or given twice")
    if not before.issuperset(given):
        raise InvalidEdit("a command is given that is not withheld")
    if not before.isdisjoint(taken):
        raise InvalidEdit("a command is withheld that is withheld already")
    for command in taken:
        refuse_unoffered(game, command, ids=ids, layout=layout)
    names = {identifier: name for name, identifier in ids.items()}
    barred = [barred_places([command], layout, names) for command in (*before, *taken)]
    if sum(map(len, barred)) > len(set().union(*barred)):
        raise InvalidEdit("a way is withheld to a place that shares its location with one that is withheld")
    return tuple(sorted(before.union(taken).difference(given)))


def refuse_unoffered(game: Game, command: str, *, ids: Mapping[str, str], layout: Layout) -> None:
    """`InvalidEdit` where the scene never offers the command, or the agent stands at the place from the start."""
    place = withheld_place(command)
    if place is None:
        if not occurs(game, command, layout):
            raise InvalidEdit("a command is withheld that this scene never offers")
        return
    receptacle = ids.get(place)
    if receptacle is None or receptacle not in layout.receptacles:
        raise InvalidEdit(f"there is no receptacle {place} in the scene")
    start = {fact[2] for fact in game.problem.facts if fact[0] == "atLocation"}
    if receptacle not in layout.location or layout.location[receptacle] in start:
        raise InvalidEdit(f"{place} has no location in the scene, or the agent stands there")


def occurs(game: Game, kind: str, layout: Layout) -> bool:
    """Whether the scene may ever offer a command of this kind."""
    flags = {name for name, _ in layout.flags}
    match kind:
        case "help":
            return game.verbs is Verbs.MOVE
        case "open" | "close":
            return "openable" in flags
        case "use":
            return "toggleable" in flags
        case "slice":
            return "sliceable" in flags and any(kind in KNIVES for kind in layout.objects.values())
        case "clean" | "heat" | "cool":
            able, devices = TREATING[kind]
            return able in flags and any(device in devices for device in layout.receptacles.values())
    return True


def unreachable(game: Game, layout: Layout, names: Mapping[str, str]) -> frozenset[str]:
    """Ids of the receptacles whose contents nobody gets at: barred, or shut where opening is withheld.

    `names`: id -> player's name.
    """
    if not game.withheld:
        return frozenset()
    barred = barred_places(game.withheld, layout, names)
    sealed = {place for place in layout.receptacles if layout.closed(place)} if "open" in game.withheld else set()
    return frozenset(barred | sealed)


def barred_places(commands: Collection[str], layout: Layout, names: Mapping[str, str]) -> set[str]:
    """Ids of the receptacles that nobody can go to, with those that share a location with one of them."""
    named = {place for place in map(withheld_place, commands) if place is not None}
    there = {layout.location[place] for place in layout.receptacles if names.get(place) in named} if named else set()
    return {place for place in layout.receptacles if layout.location.get(place) in there}


Fact = tuple[str, ...]
Entries = list[tuple[str, str]]
POSITIONAL = frozenset({"inReceptacle", "objectAtLocation", "inReceptacleObject"})


def apply_edit(game: Game, edit: Edit) -> Game:
    """The game that `edit` makes of `game`. Raises `InvalidEdit` where a name is unknown or a place does
    not fit.
    """
    problem = game.problem
    ids = ids_by_name(problem)
    layout = layout_of(problem)
    touched = [move.item for move in edit.moves] + list(edit.removes)
    if len(set(touched)) != len(touched):
        raise InvalidEdit("an object is moved or removed twice")
    objects, facts = list(problem.objects), list(problem.facts)
    for name in edit.removes:
        objects, facts = _without(objects, facts, _movable(name, ids, layout))
    for move in edit.moves:
        facts = _moved(facts, _movable(move.item, ids, layout), _home(move, ids, layout))
    for add in edit.adds:
        objects, facts = _added(objects, facts, add, _home(add, ids, layout))
    goal = edit.goal if edit.goal is not None else problem.goal
    changed = replace(problem, objects=tuple(objects), facts=tuple(facts), goal=goal)
    withheld = changed_offer(game, edit, ids=ids, layout=layout)
    hint = edit.hint if edit.hint is not None else hint_of(game.sentence)
    variant = variant_of(problem.goal, game.sentence)
    return _with_sentence(replace(game, problem=changed, withheld=withheld), hint=hint, variant=variant)


def verify(game: Game, *, parent: Game, root: Game | None = None, others: Collection[str] = ()) -> int:
    """The length of a plan that wins `game`, once every condition holds. `others` are digests or likenesses of
    further tasks.

    Raises `InvalidEdit` with the first reason why the game cannot replace `parent`.
    """
    layout = layout_of(game.problem)
    reason = why_illegal(game.problem.goal, layout)
    if reason is not None:
        raise InvalidEdit(reason)
    alike = game_likeness(game)
    if alike == game_likeness(parent):
        raise InvalidEdit("the edit changes nothing")
    if root is not None and alike == game_likeness(root):
        raise InvalidEdit("the edit leads back to the task that the slot began with")
    if alike in others or game_digest(game) in others:
        raise InvalidEdit("equal to a task that is in the pool, is pending or was judged for this slot")
    tables = FastGame(game)
    plan = solve(tables)
    if plan is None:
        raise InvalidEdit("no plan reaches the goal")
    engine = FastEngine(tables)
    observation = engine.reset()
    if observation.won or not plan:
        raise InvalidEdit("the goal is already true at the start")
    for command in plan:
        observation = engine.step(command)
    if not observation.won:
        raise InvalidEdit("the plan does not reach the goal")
    return len(plan)


def ids_by_name(problem: PddlProblem) -> dict[str, str]:
    """Player's name ("mug 1") -> id, in file casing, of every object and receptacle."""
    named = {argument.lower() for fact in problem.facts for argument in fact[1:]}
    names = display_names(named)
    things = [identifier for identifier, kind in problem.objects if kind in ("object", "receptacle")]
    return {names[thing.lower()]: thing for thing in things if thing.lower() in names}


def _movable(name: str, ids: dict[str, str], layout: Layout) -> str:
    identifier = ids.get(name)
    if identifier is None or identifier not in layout.objects:
        raise InvalidEdit(f"there is no object {name} in the scene")
    if not layout.flag("pickupable", identifier) or layout.objects[identifier] in catalog.FIXED:
        raise InvalidEdit(f"{name} cannot be moved")
    return identifier


def _home(place: MoveEdit | Add, ids: dict[str, str], layout: Layout) -> tuple[str, str]:
    """(id, location) of the receptacle that `place` names, once its type may contain the object's."""
    receptacle = ids.get(place.to)
    if receptacle is None or receptacle not in layout.receptacles:
        raise InvalidEdit(f"there is no receptacle {place.to} in the scene")
    kind = layout.objects[ids[place.item]] if isinstance(place, MoveEdit) else place.object_type
    if kind not in catalog.CAN_CONTAIN.get(layout.receptacles[receptacle], ()):
        raise InvalidEdit(f"a {layout.receptacles[receptacle]} cannot contain a {kind}")
    if receptacle not in layout.location:
        raise InvalidEdit(f"{place.to} has no location in the scene")
    return receptacle, layout.location[receptacle]


def _without(objects: Entries, facts: list[Fact], identifier: str) -> tuple[Entries, list[Fact]]:
    if any(fact[0] == "inReceptacleObject" and fact[2] == identifier for fact in facts):
        raise InvalidEdit("an object that holds another one cannot be removed")
    kept = [entry for entry in objects if entry[0] != identifier]
    return kept, [fact for fact in facts if identifier not in fact[1:]]


def _moved(facts: list[Fact], identifier: str, home: tuple[str, str]) -> list[Fact]:
    if any(fact[0] == "inReceptacleObject" and fact[2] == identifier for fact in facts):
        raise InvalidEdit("an object that holds another one cannot be moved")
    kept = [fact for fact in facts if not (fact[0] in POSITIONAL and fact[1] == identifier)]
    return [*kept, ("inReceptacle", identifier, home[0]), ("objectAtLocation", identifier, home[1])]


def _added(objects: Entries, facts: list[Fact], add: Add, home: tuple[str, str]) -> tuple[Entries, list[Fact]]:
    declared = {identifier for identifier, _ in objects}
    otype = f"{add.object_type}Type"
    present = sum(fact[0] == "objectType" and fact[2] == otype for fact in facts)
    if present + add.count > catalog.LARGEST_NUMBER:
        raise InvalidEdit(f"there would be more than {catalog.LARGEST_NUMBER} objects of one type")
    new = _fresh_ids(add.object_type, home[0], {name.lower() for name in declared}, add.count)
    objects = [*objects, *((name, "object") for name in new)]
    if otype not in declared:
        objects.append((otype, "otype"))
    rtypes = dict.fromkeys(fact[2] for fact in facts if fact[0] == "receptacleType")
    fits = [("canContain", rtype, otype) for rtype in rtypes if _fits(rtype, add.object_type)]
    known = set(facts)
    facts = [*facts, *(fact for fact in fits if fact not in known)]
    for name in new:
        facts.extend(object_facts(name, add.object_type, receptacle=home[0], location=home[1]))
    return objects, facts


def _fits(rtype: str, object_type: str) -> bool:
    return object_type in catalog.CAN_CONTAIN.get(rtype.removesuffix("Type"), ())


def _fresh_ids(kind: str, receptacle: str, taken: set[str], count: int) -> list[str]:
    """`count` ids that are not taken, the same for the same scene: coordinates from a digest."""
    found: list[str] = []
    attempt = 0
    while len(found) < count:
        digits = int(content_id("added object", kind, receptacle, str(attempt)), 16)
        x, y, z = (((digits >> shift) % 1000 - 500) / 100 for shift in (0, 20, 40))
        identifier = mangled(kind, (x, y, z))
        if identifier.lower() not in taken:
            taken.add(identifier.lower())
            found.append(identifier)
        attempt += 1
    return found


def _with_sentence(game: Game, *, hint: Hint, variant: int) -> Game:
    """`game` with its instruction rendered anew. A "where" hint names the places that a plan takes objects
    from.
    """
    goal = game.problem.goal
    text = sentence(goal, variant=variant)
    if hint is Hint.NONE:
        return replace(game, sentence=text)
    places = _plan_places(replace(game, sentence=text), goal) if hint.tells_where else []
    return replace(game, sentence=f"{text} {hint_sentences(goal, hint, places=places)}")


def _plan_places(game: Game, goal: Goal) -> list[str]:
    plan = solve(FastGame(game)) or []
    start = f"take {goal.object_type.lower()} "
    places = [command.rpartition(" from ")[2] for command in plan if command.startswith(start)]
    if not places:
        raise InvalidEdit("no plan reaches the goal, so there is no place to hint at")
    return places[: 2 if goal.kind is TaskKind.TWO else 1]


WORKERS = 1  # proofs come one after the other
DEADLINE_S = 600.0  # at least: a machine that is busy is no reason to refuse a task, and what is refused is stored
ALONE = f"no second engine is installed, so tasks are proven in the fast engine alone; {from_checkout('rla[alfworld]')}"


def stock_installed() -> bool:
    """Whether the `alfworld` extra is installed."""
    return all(find_spec(name) is not None for name in ("alfworld", "textworld"))


def solution(task: Task, config: Config) -> list[str]:
    """Commands that win the task; none where there is no way."""
    return list(solve(tables_for(task, config)) or ())


class EngineProof:
    """`rla.envs.protocols.Proof`: by the fast engine alone, or in the stock engine as well.

    Raises UserError where `env.own.verify_engines: both` asks for an engine that is not installed.
    """

    def __init__(self, config: Config, plan_of: Callable[[Task, Config], list[str]] = solution) -> None:
        wanted, found = household_params(config).verify_engines, stock_installed()
        if wanted == "both" and not found:
            raise UserError(
                "env.own.verify_engines: both needs the stock engine; "
                f"{from_checkout('rla[alfworld]')}, or set it to auto"
            )
        self._second = found and wanted != "fast"
        self.proven_in: tuple[str, ...] = ("fast", "textworld") if self._second else ("fast",)
        self.remark = ALONE if wanted == "auto" and not found else ""
        self._plan_of = plan_of
        own = replace(household_params(config), engine="textworld")
        self._config = replace(config, env=replace(config.env, own=own))
        self._stack = ExitStack()
        self._pool: EnvironmentPool | None = None

    async def __call__(self, task: Task) -> str:
        """Why the stock engine refuses the task; empty where it does not, or is not asked."""
        if not self._second:
            return ""
        if self._pool is None:
            deadline = max(self._config.pool.step_deadline_s, DEADLINE_S)
            pool = EnvironmentPool(recipe_of(self._config), workers=WORKERS, busy=WORKERS, deadline_s=deadline)
            self._pool = self._stack.enter_context(pool)
        environment = self._pool.environment(task)
        try:
            return await refusal(environment, self._plan_of(task, self._config))
        finally:
            environment.close()

    async def close(self) -> None:
        """No process is left."""
        self._stack.close()


async def refusal(environment: AwaitedEnvironment, plan: list[str]) -> str:
    """Why the plan does not win there, and not before its last command; empty where it does."""
    try:
        seen = await environment.reset()
        if seen.won:
            return "the stock engine: the goal is already true at the start"
        for number, command in enumerate(plan, 1):
            if command not in seen.commands:
                return f"the stock engine: step {number} of the plan is not admissible"
            seen = await environment.step(command)
            if seen.won != (number == len(plan)):
                return f"the stock engine: the plan {'wins early' if seen.won else 'does not win'}"
    except EnvironmentFailure as failure:
        return f"the stock engine: {failure}"
    return ""
