"""The six goals of ALFWorld as PDDL formulas that are fixed up to two type names.

A goal text is read as nested tuples of tokens, with its two type names blanked, and looked up among the six:
a formula of any other shape is refused instead of being approximated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

Form: TypeAlias = "str | tuple[Form, ...]"


class TaskKind(StrEnum):
    """ALFRED's task types, spelled as in its folder names."""

    PLACE = "pick_and_place_simple"
    CLEAN = "pick_clean_then_place_in_recep"
    HEAT = "pick_heat_then_place_in_recep"
    COOL = "pick_cool_then_place_in_recep"
    TWO = "pick_two_obj_and_place"
    LOOK = "look_at_obj_in_light"


@dataclass(frozen=True, slots=True)
class Goal:
    """Type names in ALFRED's casing, no "Type". `target_type` is the receptacle's (for LOOK the lamp's)."""

    kind: TaskKind
    object_type: str
    target_type: str


_TREATED = """(exists (?r - receptacle) (exists (?o - object) (and ({able} ?o)
    (objectType ?o {object}Type) (receptacleType ?r {target}Type) ({state} ?o) (inReceptacle ?o ?r))))"""

FORMULAS: dict[TaskKind, str] = {
    TaskKind.PLACE: """(exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r)
    (objectType ?o {object}Type) (receptacleType ?r {target}Type))))""",
    TaskKind.CLEAN: _TREATED.replace("{able}", "cleanable").replace("{state}", "isClean"),
    TaskKind.HEAT: _TREATED.replace("{able}", "heatable").replace("{state}", "isHot"),
    TaskKind.COOL: _TREATED.replace("{able}", "coolable").replace("{state}", "isCool"),
    TaskKind.TWO: """(exists (?r - receptacle) (exists (?o1 - object) (and
    (objectType ?o1 {object}Type) (receptacleType ?r {target}Type) (inReceptacle ?o1 ?r)
    (exists (?o2 - object) (and (not (= ?o1 ?o2))
    (objectType ?o2 {object}Type) (receptacleType ?r {target}Type) (inReceptacle ?o2 ?r))))))""",
    TaskKind.LOOK: """(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and
    (objectType ?ot {target}Type) (toggleable ?ot) (isToggled ?ot)
    (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))
    (exists (?o - object ?a - agent) (and (objectType ?o {object}Type) (holds ?a ?o)))""",
}

_TOKEN = re.compile(r"[()]|[^\s()]+")
_TYPE = re.compile(r"(?<=\s)([A-Za-z]+)Type\b")


def render_goal(goal: Goal) -> str:
    """The PDDL formula of `goal`, from `(and` to its closing bracket."""
    body = FORMULAS[goal.kind].replace("{object}", goal.object_type).replace("{target}", goal.target_type)
    return f"(and {body})"


def parse_goal(text: str) -> Goal | None:
    """The goal that the formula `text` states, or nothing when it is none of the six."""
    types = list(dict.fromkeys(_TYPE.findall(text)))
    if len(types) != 2:
        return None
    for object_type, target_type in (types, types[::-1]):
        blanks = {object_type: "{object}Type", target_type: "{target}Type"}
        kind = _KIND_OF.get(read_form(_with_types(text, blanks)))
        if kind is not None:
            return Goal(kind, object_type, target_type)
    return None


def _with_types(text: str, names: dict[str, str]) -> str:
    return _TYPE.sub(lambda found: names[found[1]], text)


def read_form(text: str) -> Form | None:
    """The one bracketed expression in `text` as nested tuples of tokens; nothing where they do not match."""
    stack: list[list[Form]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                return None
            done = tuple(stack.pop())
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    return stack[0][0] if len(stack) == 1 and len(stack[0]) == 1 else None


_KIND_OF = {read_form(f"(and {formula})"): kind for kind, formula in FORMULAS.items()}
