"""Edits of a task: read from untrusted JSON text, applied to a game's facts, and proven to give a legal, new task.

`schemas/edit.schema.json` describes an edit. `_scene_schema` puts the scene's names and the catalogue's types in place
of its patterns: an engine that decodes by it can name nothing else, and `parse_edit` accepts nothing else. `apply_edit`
renders ids, facts, goal, instruction and hints itself, so no text of a model reaches the game. `verify` is the gate.
The three raise `RejectedEdit`, whose message quotes no unchecked text. `EditPrompt` asks a language model for an edit.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Set
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from rla.envs.alfworld import catalog
from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.alfworld.game import Fact, Game, Layout, game_of, mangled, object_facts
from rla.envs.alfworld.goals import TREATMENTS, Goal, Hint, TaskKind
from rla.envs.alfworld.solver import solve
from rla.envs.chat_prompts import QUOTED, quoted
from rla.envs.protocols import Message, ProposalView, RejectedEdit
from rla.store.records import Task, content_id
from rla.store.schema import load_schema

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

Edit = dict[str, Any]  # the JSON object
EDIT_KEYS = frozenset({"goal", "move", "add", "remove", "hint"})
MAX_TEXT = 4000
MAX_ITEMS = 8

_RUBRIC = """You change tasks of a text game in a household, in which an agent learns to act: {wanted}. The agent \
sees the task and the receptacles' names, goes to them, opens them, takes an object, treats it (clean: sinkbasin, \
heat: microwave, cool: fridge) and puts it down.

Answer with one JSON object and nothing else. Its keys, each optional, at least one:
{keys}
Name things as the scene below does ("mug 1") and types as it does ("Mug"). For example:
{example}

{quoted}"""
_KEYS_TOLD = {
    "goal": '- "goal": {{"kind", "object_type", "target_type"}}: another goal. Kinds: {kinds}. The target is a type of '
    "receptacle that may hold the object, for look_at_obj_in_light a lamp. The goal may not be true already.",
    "move": '- "move": [{{"object", "to"}}]: objects lie elsewhere from the start; '
    "in a closed receptacle they are hidden.",
    "add": '- "add": [{{"object_type", "to", "count"}}]: more objects; of other types they distract.',
    "remove": '- "remove": [{{"object"}}]: objects that are gone.',
    "hint": '- "hint": what the task tells beyond its goal: none, where, how, where_and_how.',
}
_WANTED = {
    "harder": "make this one harder, but still possible: it is won too often",
    "easier": "make this one easier: it is won too seldom",
}
_CLOSING = "The change, as one JSON object:"


def parse_edit(text: str, game: Game) -> Edit:
    """The edit of `game` in `text`. Raises RejectedEdit unless it is one JSON object that `_scene_schema` allows."""
    if len(text) > MAX_TEXT:
        raise RejectedEdit(f"the edit is longer than {MAX_TEXT} characters")
    try:
        edit: Edit = json.loads(
            text, object_pairs_hook=_no_duplicates, parse_float=_no_number, parse_constant=_no_number
        )
    except (ValueError, RecursionError) as error:
        raise RejectedEdit("the edit is not a JSON object") from error
    # The path of an error holds keys of the schema and positions, nothing else of the text.
    if broken := next(_validator(game).iter_errors(edit), None):
        where = ".".join(map(str, broken.absolute_path)) or "the edit"
        raise RejectedEdit(f"{where} breaks the rule {broken.validator!r} of schemas/edit.schema.json for this scene")
    return edit


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise RejectedEdit("a key occurs twice in one object of the edit")
    return dict(pairs)


def _no_number(text: str) -> NoReturn:
    raise RejectedEdit("a number of the edit is not a whole number")


@lru_cache(maxsize=64)
def _scene_schema(game: Game, keys: Set[str] = EDIT_KEYS) -> dict[str, Any]:
    """The schema of edits with the names of this scene and with these keys. Shared: do not change it."""
    layout = Layout.of(game.problem)
    places = sorted(name for identifier, name in layout.names.items() if identifier in layout.receptacles)
    items = sorted(name for identifier, name in layout.names.items() if layout.movable(identifier))
    schema = copy.deepcopy(load_schema("edit"))
    kept = {key: schema[key] for key in ("type", "additionalProperties", "minProperties", "properties")}
    fields: dict[str, Any] = kept["properties"]
    types, place, item = {"enum": sorted(catalog.TYPES)}, {"enum": places}, {"enum": items}
    for key in ("object_type", "target_type"):
        fields["goal"]["properties"][key] = types
    fields["add"]["items"]["properties"] |= {"object_type": types, "to": place}
    fields["move"]["items"]["properties"] = {"object": item, "to": place}
    fields["remove"]["items"]["properties"] = {"object": item}
    idle = () if items else ("move", "remove")
    kept["properties"] = {key: field for key, field in fields.items() if key in keys and key not in idle}
    return kept


@lru_cache(maxsize=64)
def _validator(game: Game) -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # slow to import, and few stages read edits

    return Draft202012Validator(_scene_schema(game))


def apply_edit(game: Game, edit: Edit) -> Game:
    """The game that `edit`, which names things of the scene, makes of `game`.

    Raises RejectedEdit if a thing cannot be moved or a place does not fit.
    """
    problem, layout = game.problem, Layout.of(game.problem)
    ids = layout.ids
    removed, moved = ([entry["object"] for entry in edit.get(key, ())] for key in ("remove", "move"))
    if len({*removed, *moved}) != len(removed) + len(moved):
        raise RejectedEdit("an object is moved or removed twice")
    held = {fact[1]: fact[2] for fact in problem.facts if fact[0] == "inReceptacleObject"}
    for name in (*removed, *moved):
        if not layout.movable(ids[name]) or ids[name] in held.values():
            raise RejectedEdit(f"{name} cannot be moved or removed: it is fixed, or holds another object")
        held.pop(ids[name], None)
    gone = {ids[name] for name in removed}
    objects = [entry for entry in problem.objects if entry[0] not in gone]
    facts = [fact for fact in problem.facts if gone.isdisjoint(fact[1:])]
    for move in edit.get("move", ()):
        item = ids[move["object"]]
        place, location = _home(layout, ids[move["to"]], layout.objects[item])
        old = {("inReceptacle", item), ("objectAtLocation", item), ("inReceptacleObject", item)}
        facts = [fact for fact in facts if fact[:2] not in old]
        facts += [("inReceptacle", item, place), ("objectAtLocation", item, location)]
    for add in edit.get("add", ()):
        kind = add["object_type"]
        _add_objects(objects, facts, kind, add["count"], _home(layout, ids[add["to"]], kind))
    goal = Goal(**edit["goal"] | {"kind": TaskKind(edit["goal"]["kind"])}) if "goal" in edit else problem.goal
    changed = replace(problem, objects=tuple(objects), facts=tuple(facts), goal=goal)
    hint = Hint(edit["hint"]) if "hint" in edit else Hint.of(game.sentence)
    sentence = goal.sentence(problem.goal.variant_of(game.sentence))
    child = replace(game, problem=changed, sentence=sentence)
    if hint is Hint.NONE:
        return child
    places = []  # from which a plan takes the objects that the goal needs
    if "where" in hint.parts:
        plan, take = solve(FastGame(child)) or [], f"take {goal.item} "
        places = [command.rpartition(" from ")[2] for command in plan if command.startswith(take)][: goal.needed]
        if not places:
            raise RejectedEdit("no plan reaches the goal, so there is no place to hint at")
    return replace(child, sentence=f"{sentence} {goal.hint_text(hint, places=places)}")


def _home(layout: Layout, receptacle: str, kind: str) -> tuple[str, str]:
    """(id, location) of the receptacle, if its type can contain objects of type `kind`."""
    if kind not in catalog.CAN_CONTAIN.get(layout.receptacles[receptacle], ()):
        raise RejectedEdit(f"a {layout.receptacles[receptacle]} cannot contain a {kind}")
    if receptacle not in layout.location:
        raise RejectedEdit(f"{layout.names[receptacle]} has no location in the scene")
    return receptacle, layout.location[receptacle]


def _add_objects(
    objects: list[tuple[str, str]], facts: list[Fact], kind: str, count: int, home: tuple[str, str]
) -> None:
    """Append objects and facts. Ids have coordinates from a digest, so they are the same for the same scene."""
    otype = f"{kind}Type"
    present = sum(fact[0] == "objectType" and fact[2] == otype for fact in facts)
    if present + count > catalog.LARGEST_NUMBER:
        raise RejectedEdit(f"there would be more than {catalog.LARGEST_NUMBER} objects of one type")
    declared = {identifier for identifier, _ in objects}
    taken = {identifier.lower() for identifier in declared}
    new: list[str] = []
    attempt = 0
    while len(new) < count:
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


def verify(game: Game, *, parent: Game, root: Game | None = None, others: Collection[str] = ()) -> int:
    """The length of a plan that wins `game`, replayed in the fast engine.

    Raises RejectedEdit with the first reason why `game` cannot replace `parent`: the goal is illegal or true already,
    the game equals its parent, its root or one of `others` (digests or likenesses), or there is no plan.
    """
    if reason := Layout.of(game.problem).why_illegal(game.problem.goal):
        raise RejectedEdit(reason)
    alike = game.likeness()
    if alike == parent.likeness():
        raise RejectedEdit("the edit changes nothing")
    if root is not None and alike == root.likeness():
        raise RejectedEdit("the edit leads back to the task that the slot began with")
    if alike in others or game.digest() in others:
        raise RejectedEdit("equal to a task that is in the pool, is pending or was judged for this slot")
    tables = FastGame(game)
    plan = solve(tables)
    if plan is None:
        raise RejectedEdit("no plan reaches the goal")
    engine = FastEngine(tables)
    observation = engine.reset()
    if observation.won or not plan:
        raise RejectedEdit("the goal is already true at the start")
    for command in plan:
        observation = engine.step(command)
    if not observation.won:
        raise RejectedEdit("the plan does not reach the goal")
    return len(plan)


class EditPrompt:
    """`rla.envs.protocols.ProposalPrompt` of ALFWorld. `keys`: the keys that an edit may have."""

    criticised = True

    def __init__(self, keys: Set[str]) -> None:
        self._keys = frozenset(keys)

    def messages(self, task: Task, view: ProposalView) -> list[Message]:
        game = game_of(task.payload)
        layout, goal = Layout.of(game.problem), game.problem.goal
        edits = (edit for edit in _examples(layout) if edit.keys() <= self._keys)
        rubric = _RUBRIC.format(
            wanted=_WANTED[view.direction],
            keys="\n".join(
                line.format(kinds=", ".join(TaskKind)) for key, line in _KEYS_TOLD.items() if key in self._keys
            ),
            example="\n".join(json.dumps(edit, sort_keys=True) for edit in edits),
            quoted=QUOTED,
        )
        hint = Hint.of(game.sentence)
        parts = {
            "Task": task.instruction,
            "Goal": f"{goal.kind}, object_type {goal.object_type}, target_type {goal.target_type}, hint {hint}",
            "Won": f"{view.accuracy:.0%} of the episodes",
            "What the critic says": view.critique or "(nothing)",
            "Scene": "\n".join([*_contents(layout), "", *_abilities(layout)]),
        }
        return [{"role": "user", "content": f"{rubric}\n\n{quoted(parts)}\n\n{_CLOSING}"}]

    def schema(self, task: Task) -> dict[str, Any]:
        return _scene_schema(game_of(task.payload), self._keys)


def _contents(layout: Layout) -> list[str]:
    """Per receptacle a line with its contents."""
    inside: dict[str, list[str]] = {}
    for item, place in layout.inside.items():
        if item in layout.names:
            inside.setdefault(place, []).append(layout.names[item])
    return [
        f"{layout.names[place]}{' (closed)' * layout.closed(place)}: {', '.join(inside.get(place, ())) or '-'}"
        for place in layout.receptacles
        if place in layout.names
    ]


def _abilities(layout: Layout) -> list[str]:
    """The types of the scene, and which of them each treatment applies to and each receptacle type holds."""
    types = {item: layout.objects[item] for item in layout.inside if item in layout.objects}
    present = sorted(set(types.values()))
    lines = [f"Types: {', '.join(present)}"]
    for kind, treatment in TREATMENTS.items():
        treated = {of for item, of in types.items() if layout.flag(treatment.able, item)}
        if treated and layout.of_type(treatment.device):
            lines.append(f"{kind}: {', '.join(sorted(treated))}")
    if lamps := {of for item, of in types.items() if layout.flag("toggleable", item)}:
        lines.append(f"{TaskKind.LOOK}: under {', '.join(sorted(lamps))}")
    for place in sorted(set(layout.receptacles.values())):
        if held := [kind for kind in present if (place, kind) in layout.can_contain]:
            lines.append(f"{place} may hold: {', '.join(held)}")
    return lines


def _examples(layout: Layout) -> list[Edit]:
    """Edits with the names of this scene, not necessarily legal ones."""
    names = layout.names
    items = [item for item in layout.inside if layout.movable(item) and item in names]
    if not items:
        return [{"hint": "where"}]
    item, place = items[0], layout.inside[items[0]]
    other = next((p for p in names if p in layout.receptacles and p != place), place)
    return [
        {"move": [{"object": names[item], "to": names[other]}], "hint": "none"},
        {"add": [{"object_type": layout.objects[item], "to": names[place], "count": 1}]},
    ]
