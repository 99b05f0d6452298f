"""Edits of a task: read from untrusted JSON text, applied to a game's facts, and proven to give a legal, new task.

An edit is `{"goal": {"kind", "object_type", "target_type"}, "move": [{"object", "to"}], "add": [{"object_type", "to",
"count"}], "remove": [{"object"}], "hint": "none|where|how|where_and_how", "withhold": ["open", "go to drawer 1"],
"give": ["close"]}` with at least one of these keys (`schemas/edit.schema.json`). Objects and receptacles are named as
the player sees them ("mug 1"), types as in the catalogue ("Mug").

`parse_edit` accepts whitelisted names only, and `apply_edit` renders ids, facts, goal, instruction and hints itself, so
no text of a model reaches the game. `verify` is the gate. All three raise `InvalidEdit`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from rla.envs.alfworld import catalog
from rla.envs.alfworld.engine import GO, KINDS, NOTHING, PLACE, FastEngine, FastGame, Op, withheld_place
from rla.envs.alfworld.game import Fact, Game, Layout, Verbs
from rla.envs.alfworld.goals import Goal, Hint, TaskKind
from rla.envs.alfworld.scenes import mangled, object_facts
from rla.envs.alfworld.solver import solve
from rla.store.records import content_id

SCENE_KEYS = frozenset({"goal", "move", "add", "remove", "hint"})  # proposed unless the configuration says otherwise
OFFER_KEYS = frozenset({"withhold", "give"})  # change the commands on offer, neither goal nor scene
MAX_TEXT = 4000
MAX_ITEMS = 8
MAX_COUNT = 4

_NAME = re.compile(r"([a-z]{1,24}) ([1-9][0-9]?)", re.ASCII)
_NAMED_TYPES = frozenset(name.lower() for name in catalog.TYPES)


class InvalidEdit(Exception):
    """An edit that cannot be read, applied or proven. The message is the reason and quotes no unchecked text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveEdit:
    """Object `item` lies in receptacle `to` from the start."""

    item: str
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """`count` more objects of a type in receptacle `to`."""

    object_type: str
    to: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The changes of a game. None in `goal` and `hint` keeps the present one. `withhold` and `give` are commands."""

    goal: Goal | None = None
    moves: tuple[MoveEdit, ...] = ()
    adds: tuple[Add, ...] = ()
    removes: tuple[str, ...] = ()
    hint: Hint | None = None
    withhold: tuple[str, ...] = ()
    give: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """The JSON object, without the keys that change nothing."""
        goal = self.goal
        fields = {
            "goal": goal
            and {"kind": goal.kind.value, "object_type": goal.object_type, "target_type": goal.target_type},
            "move": [{"object": move.item, "to": move.to} for move in self.moves],
            "add": [asdict(add) for add in self.adds],
            "remove": [{"object": name} for name in self.removes],
            "hint": self.hint and self.hint.value,
            "withhold": list(self.withhold),
            "give": list(self.give),
        }
        return {key: value for key, value in fields.items() if value}

    def to_json(self) -> str:
        """The text that `parse_edit` reads back as an equal edit."""
        return json.dumps(self.fields(), sort_keys=True)


def parse_edit(text: str) -> Edit:
    """The edit in `text`. Raises InvalidEdit unless it is exactly one JSON object of this kind."""
    if len(text) > MAX_TEXT:
        raise InvalidEdit(f"the edit is longer than {MAX_TEXT} signs")
    try:
        value = json.loads(text, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise InvalidEdit("the edit is not a JSON object") from error
    fields = _object(value, "the edit", optional=SCENE_KEYS | OFFER_KEYS)
    if not fields:
        raise InvalidEdit("the edit changes nothing")
    return Edit(
        goal=_goal(fields["goal"]) if "goal" in fields else None,
        moves=tuple(
            MoveEdit(item=_name(move["object"], "move.object"), to=_name(move["to"], "move.to"))
            for move in _entries(fields, "move", "object", "to")
        ),
        adds=tuple(map(_add, _entries(fields, "add", "object_type", "to", "count"))),
        removes=tuple(_name(one["object"], "remove.object") for one in _entries(fields, "remove", "object")),
        hint=Hint(_choice(fields["hint"], set(Hint), "hint")) if "hint" in fields else None,
        withhold=tuple(_command(item, "withhold") for item in _items(fields, "withhold")),
        give=tuple(_command(item, "give") for item in _items(fields, "give")),
    )


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise InvalidEdit("a key occurs twice in one object of the edit")
    return dict(pairs)


def _object(
    value: object, where: str, *, required: Collection[str] = (), optional: Collection[str] = ()
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidEdit(f"{where} is not a JSON object")
    if missing := set(required) - set(value):
        raise InvalidEdit(f"{where} lacks {', '.join(sorted(missing))}")
    if not set(value) <= (allowed := {*required, *optional}):
        raise InvalidEdit(f"{where} has other keys than {', '.join(sorted(allowed))}")
    return value


def _items(fields: dict[str, Any], key: str) -> list[object]:
    if key not in fields:
        return []
    value = fields[key]
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_ITEMS:
        raise InvalidEdit(f"{key} is not a list of 1 to {MAX_ITEMS} entries")
    return value


def _entries(fields: dict[str, Any], key: str, *required: str) -> Iterator[dict[str, Any]]:
    for item in _items(fields, key):
        yield _object(item, key, required=required)


def _goal(value: object) -> Goal:
    fields = _object(value, "goal", required=("kind", "object_type", "target_type"))
    return Goal(
        kind=TaskKind(_choice(fields["kind"], set(TaskKind), "goal.kind")),
        object_type=_type(fields["object_type"], "goal.object_type"),
        target_type=_type(fields["target_type"], "goal.target_type"),
    )


def _add(fields: dict[str, Any]) -> Add:
    count = fields["count"]
    if type(count) is not int or not 1 <= count <= MAX_COUNT:
        raise InvalidEdit(f"add.count is not a whole number from 1 to {MAX_COUNT}")
    kind = _type(fields["object_type"], "add.object_type")
    return Add(object_type=kind, to=_name(fields["to"], "add.to"), count=count)


def _command(value: object, where: str) -> str:
    if isinstance(value, str) and value in KINDS:
        return value
    found = PLACE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidEdit(f'{where} has something else than kinds of commands and ways such as "{GO}drawer 1"')
    return GO + _name(found[1], where)


def _choice(value: object, known: Collection[str], where: str) -> str:
    if not isinstance(value, str) or value not in known:
        raise InvalidEdit(f"{where} is not one of {', '.join(sorted(known))}")
    return value


def _type(value: object, where: str) -> str:
    if not isinstance(value, str) or value not in catalog.TYPES:
        raise InvalidEdit(f"{where} is not a type of the catalogue")
    return value


def _name(value: object, where: str) -> str:
    match = _NAME.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[1] not in _NAMED_TYPES:
        raise InvalidEdit(f'{where} is not a name such as "mug 1"')
    return match[0]


def apply_edit(game: Game, edit: Edit) -> Game:
    """The game that `edit` makes of `game`. Raises InvalidEdit if a name is unknown or a place does not fit."""
    problem, layout = game.problem, Layout.of(game.problem)
    ids = layout.ids
    touched = [*(move.item for move in edit.moves), *edit.removes]
    if len(set(touched)) != len(touched):
        raise InvalidEdit("an object is moved or removed twice")
    objects, facts = list(problem.objects), list(problem.facts)
    for name in edit.removes:
        item = _movable(name, ids, layout)
        _refuse_vessel(facts, item, "removed")
        objects = [entry for entry in objects if entry[0] != item]
        facts = [fact for fact in facts if item not in fact[1:]]
    for move in edit.moves:
        item = _movable(move.item, ids, layout)
        place, location = _home(move.to, layout.objects[item], ids, layout)
        _refuse_vessel(facts, item, "moved")
        old = {("inReceptacle", item), ("objectAtLocation", item), ("inReceptacleObject", item)}
        facts = [fact for fact in facts if fact[:2] not in old]
        facts += [("inReceptacle", item, place), ("objectAtLocation", item, location)]
    for add in edit.adds:
        _add_objects(objects, facts, add, _home(add.to, add.object_type, ids, layout))
    goal = edit.goal or problem.goal
    changed = replace(problem, objects=tuple(objects), facts=tuple(facts), goal=goal)
    hint = Hint.of(game.sentence) if edit.hint is None else edit.hint
    withheld = _changed_offer(game, edit)
    sentence = goal.sentence(problem.goal.variant_of(game.sentence))
    child = replace(game, problem=changed, withheld=withheld, sentence=sentence)
    if hint is Hint.NONE:
        return child
    places = _plan_places(child) if hint.tells_where else []
    return replace(child, sentence=f"{sentence} {goal.hint_text(hint, places=places)}")


def _movable(name: str, ids: Mapping[str, str], layout: Layout) -> str:
    identifier = ids.get(name)
    if identifier is None or identifier not in layout.objects:
        raise InvalidEdit(f"there is no object {name} in the scene")
    if not layout.movable(identifier):
        raise InvalidEdit(f"{name} cannot be moved")
    return identifier


def _home(name: str, kind: str, ids: Mapping[str, str], layout: Layout) -> tuple[str, str]:
    """(id, location) of the receptacle `name`, if its type can contain objects of type `kind`."""
    receptacle = ids.get(name)
    if receptacle is None or receptacle not in layout.receptacles:
        raise InvalidEdit(f"there is no receptacle {name} in the scene")
    if kind not in catalog.CAN_CONTAIN.get(layout.receptacles[receptacle], ()):
        raise InvalidEdit(f"a {layout.receptacles[receptacle]} cannot contain a {kind}")
    if receptacle not in layout.location:
        raise InvalidEdit(f"{name} has no location in the scene")
    return receptacle, layout.location[receptacle]


def _refuse_vessel(facts: list[Fact], item: str, done: str) -> None:
    if any(fact[0] == "inReceptacleObject" and fact[2] == item for fact in facts):
        raise InvalidEdit(f"an object that holds another one cannot be {done}")


def _add_objects(objects: list[tuple[str, str]], facts: list[Fact], add: Add, home: tuple[str, str]) -> None:
    """Append objects and facts. Ids have coordinates from a digest, so they are the same for the same scene."""
    kind, otype = add.object_type, f"{add.object_type}Type"
    present = sum(fact[0] == "objectType" and fact[2] == otype for fact in facts)
    if present + add.count > catalog.LARGEST_NUMBER:
        raise InvalidEdit(f"there would be more than {catalog.LARGEST_NUMBER} objects of one type")
    declared = {identifier for identifier, _ in objects}
    taken = {identifier.lower() for identifier in declared}
    new: list[str] = []
    attempt = 0
    while len(new) < add.count:
        digits = int(content_id("added object", kind, home[0], str(attempt)), 16)
        x, y, z = (((digits >> shift) % 1000 - 500) / 100 for shift in (0, 20, 40))
        identifier = mangled(kind, (x, y, z))
        if identifier.lower() not in taken:
            taken.add(identifier.lower())
            new.append(identifier)
        attempt += 1
    objects += [(identifier, "object") for identifier in new]
    if otype not in declared:
        objects.append((otype, "otype"))
    known = set(facts)
    for rtype in dict.fromkeys(fact[2] for fact in facts if fact[0] == "receptacleType"):
        fact = ("canContain", rtype, otype)
        if kind in catalog.CAN_CONTAIN.get(rtype.removesuffix("Type"), ()) and fact not in known:
            facts.append(fact)
    for identifier in new:
        facts += object_facts(identifier, kind, receptacle=home[0], location=home[1])


def _changed_offer(game: Game, edit: Edit) -> tuple[str, ...]:
    """The commands that the game withholds after the edit, sorted."""
    before, taken, given = set(game.withheld), edit.withhold, edit.give
    if len({*taken, *given}) != len(taken) + len(given):
        raise InvalidEdit("a command is withheld or given twice")
    if not before.issuperset(given):
        raise InvalidEdit("a command is given that is not withheld")
    if not before.isdisjoint(taken):
        raise InvalidEdit("a command is withheld that is withheld already")
    if taken:
        tables = FastGame(game)
        location = dict(zip(tables.receptacles, tables.location_of, strict=True))
        for command in taken:
            place = withheld_place(command)
            if place is None and not _occurs(tables, command):
                raise InvalidEdit("a command is withheld that this scene never offers")
            if place is not None and place not in location:
                raise InvalidEdit(f"there is no receptacle {place} in the scene")
            if place is not None and location[place] in (NOTHING, tables.start.location):
                raise InvalidEdit(f"{place} has no location in the scene, or the agent stands there")
        barred = [location[place] for place in map(withheld_place, (*before, *taken)) if place is not None]
        if len(set(barred)) < len(barred):
            raise InvalidEdit("a way is withheld to a place that shares its location with one that is withheld")
    return tuple(sorted(before.union(taken).difference(given)))


def _occurs(tables: FastGame, kind: str) -> bool:
    """Whether the scene may ever offer a command of this kind."""
    match kind:
        case "help":
            return tables.verbs is Verbs.MOVE
        case "open" | "close":
            return bool(tables.openable)
        case "use":
            return bool(tables.toggleable)
        case "slice":
            return bool(tables.sliceable and tables.knives)
        case "clean" | "heat" | "cool":
            return bool(tables.treatable[Op(kind)] and tables.devices[Op(kind)])
    return True


def _plan_places(game: Game) -> list[str]:
    """The places from which a plan takes the objects that the goal needs."""
    goal, plan = game.problem.goal, solve(FastGame(game)) or []
    places = [command.rpartition(" from ")[2] for command in plan if command.startswith(f"take {goal.item} ")]
    if not places:
        raise InvalidEdit("no plan reaches the goal, so there is no place to hint at")
    return places[: goal.needed]


def verify(game: Game, *, parent: Game, root: Game | None = None, others: Collection[str] = ()) -> int:
    """The length of a plan that wins `game`, replayed in the fast engine.

    Raises InvalidEdit with the first reason why `game` cannot replace `parent`: the goal is illegal or true already,
    the game equals its parent, its root or one of `others` (digests or likenesses), or there is no plan.
    """
    if reason := Layout.of(game.problem).why_illegal(game.problem.goal):
        raise InvalidEdit(reason)
    alike = game.likeness()
    if alike == parent.likeness():
        raise InvalidEdit("the edit changes nothing")
    if root is not None and alike == root.likeness():
        raise InvalidEdit("the edit leads back to the task that the slot began with")
    if alike in others or game.digest() in others:
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
