"""What an agent knows that has only read the game's text: the task, what lies where, what is in hand.

Everything is read from observations; names are as on the screen ("mug 2").
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rla.envs.alfworld.goals import TaskKind
from rla.errors import UserError

_TASK = re.compile(r"Your task is to: (.*)", re.DOTALL)
_TREATED = {
    "clean": TaskKind.CLEAN,
    "heat": TaskKind.HEAT,
    "hot": TaskKind.HEAT,
    "cool": TaskKind.COOL,
}
_WORDINGS: tuple[tuple[re.Pattern[str], TaskKind | None], ...] = (
    (re.compile(r"look at (?:a )?(?P<item>\w+) under the (?P<target>\w+)"), TaskKind.LOOK),
    (re.compile(r"examine the (?P<item>\w+) with the (?P<target>\w+)"), TaskKind.LOOK),
    (re.compile(r"put two (?P<item>\w+) (?:in|on) (?P<target>\w+)"), TaskKind.TWO),
    (re.compile(r"find two (?P<item>\w+) and put them (?:in|on) (?P<target>\w+)"), TaskKind.TWO),
    (re.compile(r"put a (?P<how>clean|hot|cool) (?P<item>\w+) (?:in|on) (?P<target>\w+)"), None),
    (re.compile(r"(?P<how>clean|heat|cool) some (?P<item>\w+) and put it (?:in|on) (?P<target>\w+)"), None),
    (re.compile(r"put (?:a|some) (?P<item>\w+) (?:in|on) (?P<target>\w+)"), TaskKind.PLACE),
)
_SEEN = re.compile(r"(?:On the|The) (\w+ \d+)(?:,| is open\. In it,) you see ([^.]*)\.")
_CLOSED = re.compile(r"The (\w+ \d+) is closed\.")
_CLOSING = re.compile(r"You close the (\w+ \d+)\.")
_TAKING = re.compile(r"You pick up the (\w+ \d+) from the (\w+ \d+)\.")
_PUTTING = re.compile(r"You (?:put|move) the (\w+ \d+) (?:in/on|to) the (\w+ \d+)\.")
_TREATING = re.compile(r"You (clean|heat|cool) the (\w+ \d+) using")
_LIGHTING = re.compile(r"You turn on the (\w+ \d+)\.")
_NAME = re.compile(r"\w+ \d+")


@dataclass(frozen=True, slots=True)
class Errand:
    """The task as its sentence tells it; lower-cased type names, and places that a hint names."""

    kind: TaskKind
    item: str
    target: str
    hinted: frozenset[str]


def read_errand(text: str) -> Errand:
    """The task in an episode's first observation. Raises `UserError` where no known wording fits."""
    task = _TASK.search(text)
    for pattern, kind in _WORDINGS if task else ():
        found = pattern.match(task[1]) if task else None
        if task and found:
            words = found.groupdict()
            return Errand(
                kind=kind or _TREATED[words["how"]],
                item=words["item"],
                target=words["target"],
                hinted=frozenset(_NAME.findall(task[1][found.end() :])),
            )
    raise UserError("the first observation states no task in ALFWorld's wordings; give the whole text")


def kind_of(name: str) -> str:
    """ "mug" of "mug 2"."""
    return name.partition(" ")[0]


@dataclass(slots=True)
class Memory:
    """Grows with `read`. `contents` has the receptacles that were seen into, `shut` those found closed."""

    contents: dict[str, set[str]] = field(default_factory=dict)
    shut: set[str] = field(default_factory=set)
    held: str | None = None
    treated: set[tuple[str, str]] = field(default_factory=set)
    lit: set[str] = field(default_factory=set)

    def read(self, text: str) -> None:
        """Takes in one observation."""
        for place, items in _SEEN.findall(text):
            self.contents[place] = set(_NAME.findall(items))
            self.shut.discard(place)
        self.shut.update(_CLOSED.findall(text))
        self.shut.update(_CLOSING.findall(text))
        for item, place in _TAKING.findall(text):
            self.held = item
            self.contents.setdefault(place, set()).discard(item)
        for item, place in _PUTTING.findall(text):
            self.held = None
            self.contents.setdefault(place, set()).add(item)
        for how, item in _TREATING.findall(text):
            self.treated -= {("heat", item), ("cool", item)} if how != "clean" else set()
            self.treated.add((how, item))
        self.lit.update(_LIGHTING.findall(text))

    def where(self, kind: str) -> list[tuple[str, str]]:
        """(object, place) of every object of this type that has been seen and not moved since, in order."""
        return sorted(
            (item, place) for place, items in self.contents.items() for item in items if kind_of(item) == kind
        )
