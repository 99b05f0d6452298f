"""An expert that plays from text alone: it remembers the observations and first searches the likely places.

It sees observations and admissible commands, never the engine. It explores unknown places in the order of

    log(share(object type, receptacle type) / commands needed to look inside) + NOISE * Gumbel

so that likely places come first and episodes still differ. In demonstrations a share of the actions is random; the
expert reads their results as well.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rla.config import Config
from rla.envs.alfworld import catalog
from rla.envs.alfworld.engine import GO, NOTHING_HAPPENS, FastEngine, FastGame
from rla.envs.alfworld.goals import PATTERNS, TREATMENTS, Goal, TaskKind
from rla.envs.authoring import play_through
from rla.envs.observation import Observation
from rla.envs.protocols import Demonstration
from rla.errors import UserError

NOISE = 0.3  # of the Gumbel term; 0 explores by likelihood alone
_HINTED = 1000.0  # in place of the share, for a place that a hint names

_OPENABLE = frozenset(kind.lower() for kind in catalog.OPENABLE)
_SEEN = re.compile(r"(?:On the|The) (\w+ \d+)(?:,| is open\. In it,) you see ([^.]*)\.")
_CLOSED = re.compile(r"The (\w+ \d+) is closed\.")
_CLOSING = re.compile(r"You close the (\w+ \d+)\.")
_TAKING = re.compile(r"You pick up the (\w+ \d+) from the (\w+ \d+)\.")
_PUTTING = re.compile(r"You (?:put|move) the (\w+ \d+) (?:in/on|to) the (\w+ \d+)\.")
_TREATING = re.compile(r"You (clean|heat|cool) the (\w+ \d+) using")
_LIGHTING = re.compile(r"You turn on the (\w+ \d+)\.")
_NAME = re.compile(r"\w+ \d+")


def read_goal(text: str) -> tuple[Goal, frozenset[str]]:
    """The goal in an episode's first observation, its types in lower case, and the places that a hint names.

    Raises UserError if the text does not state a task in a known wording.
    """
    task = text.partition("Your task is to: ")[2]
    for kind, pattern in PATTERNS:
        if found := pattern.match(task):
            return Goal(kind, found[1], found[2]), frozenset(_NAME.findall(task[found.end() :]))
    raise UserError("the first observation states no task in ALFWorld's wordings; give the whole text")


@dataclass(slots=True)
class Memory:
    """The observations so far. `contents`: of receptacles that were seen into. `shut`: closed receptacles."""

    contents: dict[str, set[str]] = field(default_factory=dict)
    shut: set[str] = field(default_factory=set)
    held: str | None = None
    treated: set[tuple[str, str]] = field(default_factory=set)
    lit: set[str] = field(default_factory=set)

    def read(self, observation: str) -> None:
        for place, items in _SEEN.findall(observation):
            self.contents[place] = set(_NAME.findall(items))
            self.shut.discard(place)
        self.shut.update(_CLOSED.findall(observation))
        self.shut.update(_CLOSING.findall(observation))
        for item, place in _TAKING.findall(observation):
            self.held = item
            self.contents.setdefault(place, set()).discard(item)
        for item, place in _PUTTING.findall(observation):
            self.held = None
            self.contents.setdefault(place, set()).add(item)
        for how, item in _TREATING.findall(observation):
            self.treated -= {("heat", item), ("cool", item)} if how != "clean" else set()
            self.treated.add((how, item))
        self.lit.update(_LIGHTING.findall(observation))

    def where(self, kind: str) -> list[tuple[str, str]]:
        """(object, place) of every object of this type that has been seen and not taken away since, sorted."""
        return sorted(
            (item, place) for place, items in self.contents.items() for item in items if _kind_of(item) == kind
        )


def _kind_of(name: str) -> str:
    """ "mug" for "mug 2"."""
    return name.partition(" ")[0]


class Expert:
    """The player of one episode; make a new one for each."""

    def __init__(self, *, seed: int) -> None:
        self._rng = random.Random(seed)
        self._memory = Memory()
        self._goal: Goal | None = None
        self._hinted: frozenset[str] = frozenset()
        self._commands: frozenset[str] = frozenset()
        self._places: list[str] = []
        self._appeal: dict[tuple[str, str], float] = {}
        self._last = ""

    def notice(self, action: str) -> None:
        """Tell the expert that `action` was taken instead of the one advised."""
        self._last = action

    def act(self, observation: str, commands: Sequence[str]) -> str:
        """The next command, one of `commands`. The first call has to get the episode's first observation.

        Raises UserError if that does not state a task in a known wording.
        """
        if self._goal is None:
            self._goal, self._hinted = read_goal(observation)
        memory = self._memory
        memory.read(observation)
        self._commands = frozenset(commands)
        going = (command.removeprefix(GO) for command in commands if command.startswith(GO))
        self._places = list(dict.fromkeys([*self._places, *going]))
        for place in sorted(memory.shut):
            if GO + place not in commands and f"open {place}" not in commands:
                # The agent is there and may not open it, so nothing can be found in it: it counts as seen.
                memory.contents.setdefault(place, set())
                memory.shut.discard(place)
        harmless = [command for command in commands if command.startswith((GO, "open"))] or list(commands)
        action = self._choose(self._goal) or self._rng.choice(harmless)
        if action == self._last and observation == NOTHING_HAPPENS:
            action = self._rng.choice(harmless)
        self._last = action
        return action

    def _choose(self, goal: Goal) -> str | None:
        held = self._memory.held
        if held is None:
            return self._obtain(goal)
        if _kind_of(held) != goal.item:  # taken at random: lay it down
            return self._put(held, self._places) or self._first("open ") or self._visit(self._unseen())
        if goal.kind is TaskKind.LOOK:
            return self._light(goal)
        if self._treated(goal, held):
            return self._deliver(goal, held)
        treatment = TREATMENTS[goal.kind]
        device = treatment.device.lower()
        treat = self._first(f"{treatment.verb} {held} with {device} ")
        return treat or self._visit(self._of_kind(device)) or self._explore(device)

    def _obtain(self, goal: Goal) -> str | None:
        """Take a wanted object from here, go to one that has been seen, or look for one."""
        done = self._finished(goal)
        known = [(item, place) for item, place in self._memory.where(goal.item) if place not in done]
        known.sort(key=lambda pair: not self._treated(goal, pair[0]))
        for item, place in known:
            if f"take {item} from {place}" in self._commands:
                return f"take {item} from {place}"
        return self._visit([place for _, place in known]) or self._explore(goal.item)

    def _finished(self, goal: Goal) -> list[str]:
        """Places whose wanted objects have to stay: if two are needed, the target that has one already."""
        homes = [place for _, place in self._memory.where(goal.item) if _kind_of(place) == goal.target_type]
        return homes[:1] if goal.kind is TaskKind.TWO else []

    def _light(self, goal: Goal) -> str | None:
        lamps = self._memory.where(goal.target_type)
        for lamp, _ in lamps:
            if lamp not in self._memory.lit and f"use {lamp}" in self._commands:
                return f"use {lamp}"
        return self._visit([place for _, place in lamps]) or self._explore(goal.target_type)

    def _deliver(self, goal: Goal, held: str) -> str | None:
        targets, homes = self._of_kind(goal.target_type), self._finished(goal)
        targets.sort(key=lambda place: (place not in homes, place in self._memory.shut))
        chosen = targets[:1] if homes else targets
        return self._put(held, chosen) or self._visit(chosen) or self._put(held, targets) or self._visit(targets)

    def _put(self, held: str, places: Iterable[str]) -> str | None:
        for place in places:
            for command in (f"put {held} in/on {place}", f"move {held} to {place}", f"open {place}"):
                if command in self._commands:
                    return command
        return None

    def _visit(self, places: Sequence[str]) -> str | None:
        """Open the first of `places` that is here and shut, or go to the first that is elsewhere."""
        for place in places:
            for command in (f"open {place}", GO + place):
                if command in self._commands:
                    return command
        return None

    def _explore(self, kind: str) -> str | None:
        """Look into a place not seen into yet: one within reach, else the most promising one."""
        unseen = self._unseen()
        near = [place for place in unseen if f"examine {place}" in self._commands]
        far = sorted(unseen, key=lambda place: -self._like(kind, place))
        for place in near:
            if place not in self._memory.shut:
                return f"examine {place}"
        return self._visit(near) or self._visit(far)

    def _like(self, kind: str, place: str) -> float:
        """How promising it is to look for a `kind` in `place`; drawn once per kind and place."""
        if (kind, place) not in self._appeal:
            chance = _HINTED if place in self._hinted else catalog.share(kind, _kind_of(place))
            gumbel = -math.log(-math.log(self._rng.random() or 0.5))
            effort = 2 if _kind_of(place) in _OPENABLE else 1
            self._appeal[kind, place] = math.log(chance / effort) + NOISE * gumbel
        return self._appeal[kind, place]

    def _unseen(self) -> list[str]:
        return [place for place in self._places if place not in self._memory.contents]

    def _of_kind(self, kind: str) -> list[str]:
        return [place for place in self._places if _kind_of(place) == kind]

    def _first(self, start: str) -> str | None:
        return min((command for command in self._commands if command.startswith(start)), default=None)

    def _treated(self, goal: Goal, item: str) -> bool:
        return goal.kind not in TREATMENTS or (TREATMENTS[goal.kind].verb, item) in self._memory.treated


def expert_episode(tables: FastGame, config: Config, *, seed: int, random_share: float) -> Demonstration:
    """The expert's episode in the fast engine. A share of the actions is drawn at random, and so is an action that the
    policy is never offered (`env.omit_commands`); the expert itself sees all commands.
    """
    rng, expert, engine = random.Random(seed), Expert(seed=seed), FastEngine(tables)

    def choose(seen: Observation) -> str:
        action = expert.act(seen.text, engine.commands())
        if rng.random() >= random_share and action in seen.commands:
            return action
        action = random_action(rng, seen.commands)
        expert.notice(action)
        return action

    return play_through(engine, choose, config=config)


def random_action(rng: random.Random, among: Sequence[str]) -> str:
    """A random command of a random verb: drawn uniformly, most commands would be `go to`."""
    verb = rng.choice(sorted({command.split(" ", 1)[0] for command in among}))
    return rng.choice([command for command in among if command.split(" ", 1)[0] == verb])
