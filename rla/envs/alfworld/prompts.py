"""How ALFWorld's policy and judge are prompted, and how a language model is asked to change a task.

`plain`: bare observations and commands, for small models trained on them. `published`: instructions for chat models;
the policy answers with the boxed index of a command, the judge with a boxed 1 or -1.

The schema for a reply is `schemas/edit.schema.json` with the scene's names and the catalogue's types in place of
patterns, so an engine that decodes by it can name nothing else. `parse_edit` reads the reply as strictly without it.
"""

from __future__ import annotations

import copy
from collections.abc import Set
from functools import lru_cache
from typing import Any

from rla.config import Config
from rla.envs.alfworld import catalog
from rla.envs.alfworld.edits import Add, Edit, MoveEdit
from rla.envs.alfworld.engine import GO, KINDS
from rla.envs.alfworld.game import Layout, game_of
from rla.envs.alfworld.goals import TREATMENTS, Hint, TaskKind
from rla.envs.alfworld.labels import REASONS
from rla.envs.chat_prompts import ANSWER, QUOTED, ChatJudge, ChatPrompt, PlainJudge, quoted
from rla.envs.protocols import JudgePrompt, Message, ProposalView
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
    """With `reply: text` the user turn is the observation and the reply is the command itself. Otherwise the commands
    are numbered, and the reply reasons first.
    """
    repeat_task, reply = config.policy.repeat_task, config.policy.reply
    if reply == "text":
        return ChatPrompt(repeat_task=repeat_task, listed=False, heading=WELCOME)
    return ChatPrompt(reply=reply, rules=f"{RULES} {ANSWER[reply]}", repeat_task=repeat_task)


def household_judge(config: Config) -> JudgePrompt:
    """`judge.prompt` chooses the prompt for small models or the published rubric."""
    if config.judge.prompt == "published":
        return ChatJudge(rubric=RUBRIC)
    return PlainJudge(repeat_task=config.policy.repeat_task, reasons=REASONS, heading=WELCOME)


class EditPrompt:
    """`rla.envs.protocols.ProposalPrompt` of ALFWorld. `fields`: the keys that an edit may have."""

    criticised = True

    def __init__(self, fields: Set[str]) -> None:
        self._fields = frozenset(fields)

    def messages(self, task: Task, view: ProposalView) -> list[Message]:
        game = game_of(task.payload)
        layout, goal = Layout.of(game.problem), game.problem.goal
        told = {
            "kinds": ", ".join(TaskKind),
            "offered": ", ".join(KINDS),
            "withheld": ", ".join(game.withheld) or "nothing",
        }
        edits = (edit for edit in _examples(layout) if edit.fields().keys() <= self._fields)
        rubric = EDIT_RUBRIC.format(
            wanted=WANTED[view.direction],
            keys="\n".join(line.format(**told) for key, line in KEYS_TOLD.items() if key in self._fields),
            example="\n".join(edit.to_json() for edit in edits),
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
        return [{"role": "user", "content": f"{rubric}\n\n{quoted(parts)}\n\n{CLOSING}"}]

    def schema(self, task: Task) -> dict[str, Any]:
        return _schema(task.payload, self._fields)


@lru_cache(maxsize=64)
def _schema(payload: str, wanted: frozenset[str]) -> dict[str, Any]:
    """The schema of edits with the names of this scene and the `wanted` keys. Shared: do not change it."""
    game = game_of(payload)
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
    fields["withhold"]["items"] = {"enum": [*KINDS, *(GO + name for name in places)]}
    fields["give"]["items"] = {"enum": list(game.withheld)}
    idle = {*(() if items else ("move", "remove")), *(() if game.withheld else ("give",))}
    kept["properties"] = {key: field for key, field in fields.items() if key in wanted and key not in idle}
    return kept


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
    """The types that are present, those that each treatment applies to, and those that each receptacle type holds."""
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
    found = [Edit(hint=Hint.WHERE)]
    if items:
        item, place = items[0], layout.inside[items[0]]
        other = next((p for p in names if p in layout.receptacles and p != place), place)
        found = [
            Edit(moves=(MoveEdit(item=names[item], to=names[other]),), hint=Hint.NONE),
            Edit(adds=(Add(object_type=layout.objects[item], to=names[place], count=1),)),
        ]
    way = next((GO + names[place] for place in layout.receptacles if place in names), "examine")
    return [*found, Edit(withhold=("close", way))]
