"""How ALFWorld's policy and judge are asked and read, what a language model is told to change, and its answer's schema.

`plain`: bare observations and commands, for small models trained on them. `published`: instructions for chat models;
the policy answers with the boxed index of a command, the judge with a boxed 1 or -1.

The schema of an edit is `schemas/edit.schema.json` with the scene's own names and the catalogue's types in place of
patterns, so that an engine that holds a reply to it can name nothing else. The reply is read as strictly without it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence, Set
from functools import lru_cache
from typing import Any

from rla.config import Config
from rla.envs.alfworld import catalog
from rla.envs.alfworld.edit_format import SCENE_KEYS, Add, Edit, MoveEdit, edit_type_names
from rla.envs.alfworld.editing import ids_by_name
from rla.envs.alfworld.goals import Hint, hint_of
from rla.envs.alfworld.labels import REASONS
from rla.envs.alfworld.layout import DEVICES, Layout, layout_of
from rla.envs.alfworld.problem import Game, TaskKind
from rla.envs.alfworld.tables import GO, KINDS
from rla.envs.alfworld.tasks import game_of
from rla.envs.chat_prompts import ANSWER, QUOTED, ChatJudge, ChatPrompt, PlainJudge, quoted
from rla.envs.protocols import JudgePrompt
from rla.envs.views import Message, ProposalView
from rla.store.records import Task
from rla.store.schema import load_schema

WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
RULES = "You are playing a text game in a household. Finish the task in as few steps as you can."
RUBRIC = (
    "You judge one step of an agent that plays a text game in a household. Answer 1 when the step is sensible: "
    "it explores, makes progress or finishes, its reasoning is present, relevant and true to the "
    "observations, and its action is one of the commands offered. Answer -1 otherwise: no reasoning, an action "
    "that is not offered, an irrelevant or contradictory one, or one that undoes progress. "
    f"{QUOTED} "
    "Think first, then give the score as \\boxed{1} or \\boxed{-1}."
)
EDIT_RUBRIC = """You change tasks of a text game in a household, in which an agent learns to act: {wanted}. The agent \
sees the task and the receptacles' names, goes to them, opens them, takes an object, treats it (clean: sinkbasin, \
heat: microwave, cool: fridge) and puts it down.

Answer with one JSON object and nothing else. Its keys, each optional, at least one:
{keys}
Name things as the scene below does ("mug 1") and types as it does ("Mug"). For example:
{example}

{quoted}"""
KEYS_TOLD = {
    "goal": '- "goal": {{"kind", "object_type", "target_type"}}: another goal. Kinds: {kinds}. The target is a type of '
    "receptacle that may hold the object, for look_at_obj_in_light a lamp. The goal may not be true already.",
    "move": '- "move": [{{"object", "to"}}]: objects lie elsewhere from the start; '
    "in a closed receptacle they are hidden.",
    "add": '- "add": [{{"object_type", "to", "count"}}]: more objects; of other types they distract.',
    "remove": '- "remove": [{{"object"}}]: objects that are gone.',
    "hint": '- "hint": what the task tells beyond its goal: none, where, how, where_and_how.',
    "withhold": '- "withhold": [commands]: commands that are not offered any more: kinds ({offered}), or the way to '
    'one place ("go to drawer 1"). What the task needs has to stay.',
    "give": '- "give": [commands]: withheld commands that are offered again. Withheld now: {withheld}.',
}
WANTED = {
    "harder": "make this one harder, but still possible: it is won too often",
    "easier": "make this one easier: it is won too seldom",
}
CLOSING = "The change, as one JSON object:"


def household_policy(config: Config) -> ChatPrompt:
    """`reply: text`: the user turn is the observation, the reply is the command itself. Otherwise the commands are
    numbered, and the reply reasons first.
    """
    repeat_task = config.policy.repeat_task
    if config.policy.reply == "text":
        return ChatPrompt(repeat_task=repeat_task, listed=False, heading=WELCOME)
    reply = config.policy.reply
    return ChatPrompt(reply=reply, rules=f"{RULES} {ANSWER[reply]}", repeat_task=repeat_task)


def household_judge(config: Config) -> JudgePrompt:
    """By `judge.prompt`: for small models, or the published rubric."""
    if config.judge.prompt == "published":
        return ChatJudge(rubric=RUBRIC)
    return PlainJudge(repeat_task=config.policy.repeat_task, reasons=REASONS, heading=WELCOME)


class EditPrompt:
    """`rla.envs.protocols.ProposalPrompt` of ALFWorld. `fields`: the names that an edit may have."""

    criticised = True

    def __init__(self, fields: Set[str]) -> None:
        self._fields = frozenset(fields)

    def messages(self, task: Task, view: ProposalView) -> list[Message]:
        game = game_of(task.payload)
        rubric = EDIT_RUBRIC.format(
            wanted=WANTED[view.direction],
            keys=keys_told(game, self._fields),
            example="\n".join(examples(game, self._fields)),
            quoted=QUOTED,
        )
        parts = {
            "Task": task.instruction,
            "Goal": goal_line(game),
            "Won": f"{view.accuracy:.0%} of the episodes",
            "What the critic says": view.critique or "(nothing)",
            "Scene": scene(game),
        }
        return [{"role": "user", "content": f"{rubric}\n\n{quoted(parts)}\n\n{CLOSING}"}]

    def schema(self, task: Task) -> dict[str, Any]:
        return edit_schema_of(task.payload, self._fields)


def keys_told(game: Game, fields: Set[str]) -> str:
    """A line on each key that an edit may have."""
    told = {
        "kinds": ", ".join(TaskKind),
        "offered": ", ".join(KINDS),
        "withheld": ", ".join(game.withheld) or "nothing",
    }
    return "\n".join(line.format(**told) for key, line in KEYS_TOLD.items() if key in fields)


@lru_cache(maxsize=64)
def edit_schema_of(payload: str, wanted: frozenset[str] = SCENE_KEYS) -> dict[str, Any]:
    """The edit schema with the names of this scene and the `wanted` keys. Do not change what is returned."""
    game = game_of(payload)
    layout, names = layout_of(game.problem), ids_by_name(game.problem)
    places = [name for name, identifier in names.items() if identifier in layout.receptacles]
    items = [name for name, identifier in names.items() if movable(layout, identifier)]
    schema = copy.deepcopy(load_schema("edit"))
    kept = {key: schema[key] for key in ("type", "additionalProperties", "minProperties", "properties")}
    types, place = {"enum": sorted(edit_type_names())}, {"enum": sorted(places)}
    fields: dict[str, Any] = kept["properties"]
    for key in ("object_type", "target_type"):
        fields["goal"]["properties"][key] = types
    fields["add"]["items"]["properties"] |= {"object_type": types, "to": place}
    fields["move"]["items"]["properties"] = {"object": {"enum": sorted(items)}, "to": place}
    fields["remove"]["items"]["properties"] = {"object": {"enum": sorted(items)}}
    ways = [GO + name for name in sorted(places)]
    fields["withhold"]["items"] = {"enum": [*KINDS, *ways]}
    fields["give"]["items"] = {"enum": list(game.withheld)}
    missing: tuple[str, ...] = () if items else ("move", "remove")
    missing += () if game.withheld else ("give",)
    kept["properties"] = {key: field for key, field in fields.items() if key in wanted and key not in missing}
    return kept


def movable(layout: Layout, identifier: str) -> bool:
    """Whether an edit may move or remove it."""
    kind = layout.objects.get(identifier)
    return kind is not None and kind not in catalog.FIXED and layout.flag("pickupable", identifier)


def goal_line(game: Game) -> str:
    goal, hint = game.problem.goal, hint_of(game.sentence)
    return f"{goal.kind}, object_type {goal.object_type}, target_type {goal.target_type}, hint {hint}"


def scene(game: Game) -> str:
    """What stands where, and what can be done with the types that are there."""
    layout = layout_of(game.problem)
    names = {identifier: name for name, identifier in ids_by_name(game.problem).items()}
    inside: dict[str, list[str]] = {}
    for item, place in layout.inside.items():
        if item in names:
            inside.setdefault(place, []).append(names[item])
    lines = [
        f"{names[place]}{' (closed)' if layout.closed(place) else ''}: {', '.join(inside.get(place, ())) or '-'}"
        for place in layout.receptacles
        if place in names
    ]
    return "\n".join([*lines, "", *abilities(layout)])


def abilities(layout: Layout) -> list[str]:
    """Per treatment the types of this scene that can have it, and per type of receptacle the types that it may hold."""
    present = sorted({layout.objects[item] for item in layout.inside if item in layout.objects})
    lines = [f"Types: {', '.join(present)}"]
    for kind, (able, device) in DEVICES.items():
        types = {layout.objects[item] for item in layout.inside if layout.flag(able, item) and item in layout.objects}
        if types and layout.of_type(device):
            lines.append(f"{kind}: {', '.join(sorted(types))}")
    lamps = {layout.objects[item] for item in layout.inside if layout.flag("toggleable", item)}
    lines += [f"{TaskKind.LOOK}: under {', '.join(sorted(lamps))}"] if lamps else []
    for place in sorted(set(layout.receptacles.values())):
        held = [kind for kind in present if (place, kind) in layout.can_contain]
        lines += [f"{place} may hold: {', '.join(held)}"] if held else []
    return lines


def examples(game: Game, fields: Set[str] = SCENE_KEYS) -> Sequence[str]:
    """Edits in the names of this scene, at most three; that they are legal is not promised."""
    layout = layout_of(game.problem)
    names = {identifier: name for name, identifier in ids_by_name(game.problem).items()}
    items = [item for item in layout.inside if movable(layout, item) and item in names]
    found = [Edit(hint=Hint.WHERE)]
    if items:
        item, place = items[0], layout.inside[items[0]]
        other = next((p for p in names if p in layout.receptacles and p != place), place)
        found = [
            Edit(moves=(MoveEdit(item=names[item], to=names[other]),), hint=Hint.NONE),
            Edit(adds=(Add(object_type=layout.objects[item], to=names[place], count=1),)),
        ]
    way = next((GO + names[place] for place in layout.receptacles if place in names), "examine")
    found.append(Edit(withhold=("close", way)))
    return [edit.to_json() for edit in found if edit.keys() <= fields]
