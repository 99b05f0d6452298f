"""A goal in ALFWorld's own words, two wordings per kind, and the hints that a task may carry after it.

`sentence(goal, variant=v)` is what follows "Your task is to: " in the games. A hint is one or two more
sentences, always rendered from facts: where an instance lies at the start ("you can find a mug in cabinet
3."), and how such a task is done ("to do this, take the mug, ..."). The signs are a-z, 0-9, space, comma and
full stop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from rla.envs.alfworld.goals import Goal, TaskKind

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
