"""The six goals of ALFWorld: as PDDL formulas, in ALFWorld's own words, and the hints that a task may carry.

A goal text is read as nested tuples of tokens, with its two type names blanked, and looked up among the six formulas:
one of any other shape is refused instead of being approximated.

`sentence(goal, variant=v)` is what follows "Your task is to: " in the games; each kind has two wordings. A hint is one
or two more sentences, always rendered from facts: where an instance lies at the start ("you can find a mug in cabinet
3."), and how such a task is done ("to do this, take the mug, ..."). The signs are a-z, 0-9, space, comma and full stop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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


TEMPLATES: dict[TaskKind, tuple[str, str]] = {
    TaskKind.PLACE: ("put a {item} in {target}.", "put some {item} on {target}."),
    TaskKind.CLEAN: ("put a clean {item} in {target}.", "clean some {item} and put it in {target}."),
    TaskKind.HEAT: ("put a hot {item} in {target}.", "heat some {item} and put it in {target}."),
    TaskKind.COOL: ("put a cool {item} in {target}.", "cool some {item} and put it in {target}."),
    TaskKind.TWO: ("put two {item} in {target}.", "find two {item} and put them in {target}."),
    TaskKind.LOOK: ("look at {item} under the {target}.", "examine the {item} with the {target}."),
}
VARIANTS = 2

WHERE_START = "you can find"
HOW_START = "to do this,"
HOW: dict[TaskKind, str] = {
    TaskKind.PLACE: "take the {item}, go to a {target} and put it there.",
    TaskKind.CLEAN: "take the {item}, clean it with a sinkbasin, go to a {target} and put it there.",
    TaskKind.HEAT: "take the {item}, heat it with a microwave, go to a {target} and put it there.",
    TaskKind.COOL: "take the {item}, cool it with a fridge, go to a {target} and put it there.",
    TaskKind.TWO: "take one {item} to a {target}, then take the other {item} to the same {target}.",
    TaskKind.LOOK: "take the {item}, go to the {target} and use it.",
}


class Hint(StrEnum):
    """What a task tells beyond its goal."""

    NONE = "none"
    WHERE = "where"
    HOW = "how"
    WHERE_AND_HOW = "where_and_how"

    @property
    def tells_where(self) -> bool:
        return self in (Hint.WHERE, Hint.WHERE_AND_HOW)

    @property
    def tells_how(self) -> bool:
        return self in (Hint.HOW, Hint.WHERE_AND_HOW)


def sentence(goal: Goal, *, variant: int) -> str:
    """The instruction for `goal` in wording `variant` (0 or 1)."""
    return _fill(TEMPLATES[goal.kind][variant], goal)


def variant_of(goal: Goal, text: str) -> int:
    """Which wording `text` starts with; 0 when it is neither."""
    return next((v for v in range(VARIANTS) if text.startswith(sentence(goal, variant=v))), 0)


def hint_sentences(goal: Goal, hint: Hint, *, places: Sequence[str]) -> str:
    """The sentences of `hint`; `places` are receptacle names as the player sees them ("cabinet 3")."""
    parts = []
    if hint.tells_where:
        found = " and ".join(f"{_article(goal.object_type)} in {place}" for place in places)
        parts.append(f"{WHERE_START} {found}.")
    if hint.tells_how:
        parts.append(f"{HOW_START} {_fill(HOW[goal.kind], goal)}")
    return " ".join(parts)


def hint_of(text: str) -> Hint:
    """The hint that the instruction `text` carries."""
    where, how = f" {WHERE_START} " in text, f" {HOW_START} " in text
    if where:
        return Hint.WHERE_AND_HOW if how else Hint.WHERE
    return Hint.HOW if how else Hint.NONE


def phrases() -> Iterator[str]:
    """Every wording there is, with its names left out."""
    templates = [*(text for pair in TEMPLATES.values() for text in pair), *HOW.values()]
    yield from (template.format(item="", target="") for template in templates)
    yield f"{WHERE_START} a in and a. {HOW_START}"


def _fill(template: str, goal: Goal) -> str:
    return template.format(item=goal.object_type.lower(), target=goal.target_type.lower())


def _article(type_name: str) -> str:
    return f"a {type_name.lower()}"
