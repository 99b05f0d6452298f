"""The six goals of ALFWorld: their PDDL formulas, the instructions that state them, and the hints of a task.

The two type names of a formula are replaced by placeholders, and its tokens are looked up among the six known formulas.
A formula of any other shape is rejected instead of being approximated.

Each kind of goal has two wordings. A hint appends one or two sentences, always rendered from facts: the place of an
object at the start ("you can find a mug in cabinet 3.") and the steps ("to do this, take the mug, ..."). Instructions
consist of a-z, 0-9, space, comma and full stop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class TaskKind(StrEnum):
    """ALFRED's task types, spelled as in its folder names."""

    PLACE = "pick_and_place_simple"
    CLEAN = "pick_clean_then_place_in_recep"
    HEAT = "pick_heat_then_place_in_recep"
    COOL = "pick_cool_then_place_in_recep"
    TWO = "pick_two_obj_and_place"
    LOOK = "look_at_obj_in_light"


class _Treatment(NamedTuple):
    """A command on an object, the facts that allow and record it, and the receptacle type that it needs."""

    verb: str
    able: str
    state: str
    device: str


TREATMENTS = {
    TaskKind.CLEAN: _Treatment("clean", "cleanable", "isClean", "SinkBasin"),
    TaskKind.HEAT: _Treatment("heat", "heatable", "isHot", "Microwave"),
    TaskKind.COOL: _Treatment("cool", "coolable", "isCool", "Fridge"),
}

_TREATED = """(exists (?r - receptacle) (exists (?o - object) (and ({able} ?o)
    (objectType ?o {object}Type) (receptacleType ?r {target}Type) ({state} ?o) (inReceptacle ?o ?r))))"""
_FORMULAS: dict[TaskKind, str] = {
    TaskKind.PLACE: """(exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r)
    (objectType ?o {object}Type) (receptacleType ?r {target}Type))))""",
    TaskKind.TWO: """(exists (?r - receptacle) (exists (?o1 - object) (and
    (objectType ?o1 {object}Type) (receptacleType ?r {target}Type) (inReceptacle ?o1 ?r)
    (exists (?o2 - object) (and (not (= ?o1 ?o2))
    (objectType ?o2 {object}Type) (receptacleType ?r {target}Type) (inReceptacle ?o2 ?r))))))""",
    TaskKind.LOOK: """(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and
    (objectType ?ot {target}Type) (toggleable ?ot) (isToggled ?ot)
    (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))
    (exists (?o - object ?a - agent) (and (objectType ?o {object}Type) (holds ?a ?o)))""",
    **{
        kind: _TREATED.replace("{able}", treatment.able).replace("{state}", treatment.state)
        for kind, treatment in TREATMENTS.items()
    },
}
_TOKEN = re.compile(r"[()]|[^\s()]+")
_TYPE = re.compile(r"(?<=\s)([A-Za-z]+)Type\b")

_WORDINGS: dict[TaskKind, tuple[str, str]] = {
    TaskKind.PLACE: ("put a {item} in {target}.", "put some {item} on {target}."),
    TaskKind.CLEAN: ("put a clean {item} in {target}.", "clean some {item} and put it in {target}."),
    TaskKind.HEAT: ("put a hot {item} in {target}.", "heat some {item} and put it in {target}."),
    TaskKind.COOL: ("put a cool {item} in {target}.", "cool some {item} and put it in {target}."),
    TaskKind.TWO: ("put two {item} in {target}.", "find two {item} and put them in {target}."),
    TaskKind.LOOK: ("look at {item} under the {target}.", "examine the {item} with the {target}."),
}
VARIANTS = 2
# The wordings as patterns. Games disagree on "in" and "on", so a pattern accepts both.
PATTERNS: list[tuple[TaskKind, re.Pattern[str]]] = [
    (kind, re.compile(re.sub(r" (in|on) \{", " (?:in|on) {", text[:-1]).format(item=r"(\w+)", target=r"(\w+)")))
    for kind, texts in _WORDINGS.items()
    for text in texts
]
HINT_STARTS = {"where": "you can find", "how": "to do this,"}
_HOW: dict[TaskKind, str] = {
    TaskKind.PLACE: "take the {item}, go to a {target} and put it there.",
    TaskKind.CLEAN: "take the {item}, clean it with a sinkbasin, go to a {target} and put it there.",
    TaskKind.HEAT: "take the {item}, heat it with a microwave, go to a {target} and put it there.",
    TaskKind.COOL: "take the {item}, cool it with a fridge, go to a {target} and put it there.",
    TaskKind.TWO: "take one {item} to a {target}, then take the other {item} to the same {target}.",
    TaskKind.LOOK: "take the {item}, go to the {target} and use it.",
}


class Hint(StrEnum):
    """What the instruction tells beyond the goal."""

    NONE = "none"
    WHERE = "where"
    HOW = "how"
    WHERE_AND_HOW = "where_and_how"

    @property
    def parts(self) -> frozenset[str]:
        """`where`: the place of an object, and `how`: the steps."""
        return frozenset(self.split("_and_")) & HINT_STARTS.keys()

    @classmethod
    def telling(cls, parts: Set[str]) -> Hint:
        return next(hint for hint in cls if hint.parts == parts)

    @classmethod
    def of(cls, instruction: str) -> Hint:
        """The hint that an instruction carries."""
        return cls.telling({part for part, start in HINT_STARTS.items() if f" {start} " in instruction})


@dataclass(frozen=True, slots=True)
class Goal:
    """Type names are in ALFRED's casing, without "Type". `target_type` is a receptacle type, for LOOK a lamp type."""

    kind: TaskKind
    object_type: str
    target_type: str

    @property
    def item(self) -> str:
        """The object type as it appears in the game's texts."""
        return self.object_type.lower()

    @property
    def needed(self) -> int:
        return 2 if self.kind is TaskKind.TWO else 1

    def formula(self) -> str:
        """The PDDL formula, from `(and` to its closing bracket."""
        body = _FORMULAS[self.kind].replace("{object}", self.object_type).replace("{target}", self.target_type)
        return f"(and {body})"

    def sentence(self, variant: int) -> str:
        """The instruction in wording `variant` (0 or 1)."""
        return self.filled(_WORDINGS[self.kind][variant])

    def variant_of(self, instruction: str) -> int:
        """The wording that an instruction starts with; 0 if neither matches."""
        return next((v for v in range(VARIANTS) if instruction.startswith(self.sentence(v))), 0)

    def hint_text(self, hint: Hint, *, places: Sequence[str]) -> str:
        """The sentences of `hint`. `places` are names of receptacles as the player sees them ("cabinet 3")."""
        found = " and ".join(f"a {self.item} in {place}" for place in places)
        told = {"where": f"{found}.", "how": self.filled(_HOW[self.kind])}
        return " ".join(f"{start} {told[part]}" for part, start in HINT_STARTS.items() if part in hint.parts)

    def filled(self, template: str) -> str:
        return template.format(item=self.item, target=self.target_type.lower())


def parse_goal(formula: str) -> Goal | None:
    """The goal that a PDDL formula states, None if it is not one of the six."""
    types = list(dict.fromkeys(_TYPE.findall(formula)))
    for object_type, target_type in (types, types[::-1]) if len(types) == 2 else ():
        blanks = {f"{object_type}Type": "{object}Type", f"{target_type}Type": "{target}Type"}
        if kind := _KIND_OF.get(_tokens(formula, blanks)):
            return Goal(kind, object_type, target_type)
    return None


def _tokens(formula: str, blanks: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(blanks.get(token, token) for token in _TOKEN.findall(formula))


_KIND_OF = {_tokens(f"(and {formula})", {}): kind for kind, formula in _FORMULAS.items()}


def wordings() -> Iterator[str]:
    """Every wording of instructions and hints, without the names in it."""
    templates = [*(text for pair in _WORDINGS.values() for text in pair), *_HOW.values()]
    yield from (template.format(item="", target="") for template in templates)
    yield "{where} a in and a. {how}".format(**HINT_STARTS)
