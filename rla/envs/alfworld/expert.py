"""An expert that plays from text alone: it remembers what it has read and explores where things tend to be.

It sees observations and admissible commands, never the engine; names are as on the screen ("mug 2"). Unknown places are
explored in the order of

    log(share(object type, receptacle type) / commands needed to look inside) + noise * Gumbel

so that episodes differ and the likely places come first. In demonstrations a share of the actions is drawn at random:
their results are read like those of its own.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rla.config import Config
from rla.envs.alfworld.engine import FastEngine
from rla.envs.alfworld.games import tables_for
from rla.envs.alfworld.goals import TaskKind
from rla.envs.alfworld.priors import share
from rla.envs.observation import offered
from rla.envs.views import Demonstration, Labelled
from rla.errors import UserError
from rla.store.records import Task

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


DEVICES = {
    TaskKind.CLEAN: ("clean", "sinkbasin"),
    TaskKind.HEAT: ("heat", "microwave"),
    TaskKind.COOL: ("cool", "fridge"),
}
OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})
HINTED = 1000.0
_GO = "go to "


class Expert:
    """One episode's player; make a new one for each. `noise` 0 explores in the order of likelihood alone."""

    def __init__(self, *, seed: int, noise: float = 0.3) -> None:
        self._rng = random.Random(seed)
        self._noise = noise
        self._memory = Memory()
        self._errand: Errand | None = None
        self._places: list[str] = []
        self._appeal: dict[str, float] = {}
        self._last = ""

    def notice(self, action: str) -> None:
        """Says that `action` was taken instead of the one advised; its result is read from the next text."""
        self._last = action

    def act(self, observation: str, commands: Sequence[str]) -> str:
        """The next command, one of `commands`. The first call must get the episode's first observation.

        Raises `UserError` where that states no task in a known wording.
        """
        if self._errand is None:
            self._errand = read_errand(observation)
        self._memory.read(observation)
        self._places = list(
            dict.fromkeys([*self._places, *(c.removeprefix(_GO) for c in commands if c.startswith(_GO))])
        )
        for place in self._sealed(commands):  # nothing can be found in it, so it counts as seen
            self._memory.contents.setdefault(place, set())
            self._memory.shut.discard(place)
        turn = _Turn(self._errand, self._memory, frozenset(commands), self._places, self._like)
        action = turn.choose() or self._rng.choice(self._harmless(commands))
        if action == self._last and observation == "Nothing happens.":
            action = self._rng.choice(self._harmless(commands))
        self._last = action
        return action

    def _sealed(self, commands: Sequence[str]) -> list[str]:
        """Shut places that the agent is at and may not open."""
        shut = (place for place in sorted(self._memory.shut) if _GO + place not in commands)
        return [place for place in shut if f"open {place}" not in commands]

    def _like(self, kind: str, place: str) -> float:
        """How much it is worth to look for a `kind` in `place`; drawn once per place and kind."""
        key = f"{kind} in {place}"
        if key not in self._appeal:
            hinted = self._errand is not None and place in self._errand.hinted
            chance = HINTED if hinted else share(kind, kind_of(place))
            gumbel = -math.log(-math.log(self._rng.random() or 0.5))
            effort = 2 if kind_of(place) in OPENABLE else 1
            self._appeal[key] = math.log(chance / effort) + self._noise * gumbel
        return self._appeal[key]

    @staticmethod
    def _harmless(commands: Sequence[str]) -> list[str]:
        return [c for c in commands if c.startswith((_GO, "open"))] or list(commands)


class _Turn:
    """One decision: the errand, what is known, and what may be said now."""

    def __init__(
        self,
        errand: Errand,
        memory: Memory,
        commands: frozenset[str],
        places: Sequence[str],
        like: Callable[[str, str], float],
    ) -> None:
        self.errand, self.memory, self.commands, self.places, self.like = (
            errand,
            memory,
            commands,
            places,
            like,
        )

    def choose(self) -> str | None:
        held = self.memory.held
        if held is None:
            return self._obtain()
        if kind_of(held) != self.errand.item:
            return self._lay_down(held)
        if self.errand.kind is TaskKind.LOOK:
            return self._light()
        if self._treated(held):
            return self._deliver(held)
        how, device = DEVICES[self.errand.kind]
        return self._say(f"{how} {held} with {device} ") or self._visit(self._of_kind(device)) or self._explore(device)

    def _obtain(self) -> str | None:
        """Take a wanted object from here, or go to one that has been seen, or look for one."""
        done = self._finished()
        known = [(item, place) for item, place in self.memory.where(self.errand.item) if place not in done]
        known.sort(key=lambda pair: not self._treated(pair[0]))
        for item, place in known:
            if f"take {item} from {place}" in self.commands:
                return f"take {item} from {place}"
        return self._visit([place for _, place in known]) or self._explore(self.errand.item)

    def _finished(self) -> set[str]:
        """Places whose wanted objects are to stay: for two, the target that has one already."""
        if self.errand.kind is not TaskKind.TWO:
            return set()
        homes = [place for _, place in self.memory.where(self.errand.item) if kind_of(place) == self.errand.target]
        return set(homes[:1])

    def _lay_down(self, held: str) -> str | None:
        """Rid the hand of a thing that nobody asked for."""
        return self._put(held, self.places) or self._say("open ") or self._visit(self._unseen()) or None

    def _light(self) -> str | None:
        lamps = self.memory.where(self.errand.target)
        for lamp, _ in lamps:
            if lamp not in self.memory.lit and f"use {lamp}" in self.commands:
                return f"use {lamp}"
        return self._visit([place for _, place in lamps]) or self._explore(self.errand.target)

    def _deliver(self, held: str) -> str | None:
        targets = [place for place in self._of_kind(self.errand.target)]
        homes = self._finished()
        targets.sort(key=lambda place: (place not in homes, place in self.memory.shut))
        chosen = targets[:1] if homes else targets
        return self._put(held, chosen) or self._visit(chosen) or self._put(held, targets) or self._visit(targets)

    def _put(self, held: str, places: Iterable[str]) -> str | None:
        for place in places:
            for command in (f"put {held} in/on {place}", f"move {held} to {place}", f"open {place}"):
                if command in self.commands:
                    return command
        return None

    def _visit(self, places: Sequence[str]) -> str | None:
        """Open one of `places` that is here and shut, or go to the first that is elsewhere."""
        for place in places:
            if f"open {place}" in self.commands:
                return f"open {place}"
            if _GO + place in self.commands:
                return _GO + place
        return None

    def _explore(self, kind: str) -> str | None:
        """Look into the most promising place that has not been seen into; one in reach costs least."""
        unseen = self._unseen()
        near = [place for place in unseen if f"examine {place}" in self.commands]
        far = sorted(unseen, key=lambda place: -self.like(kind, place))
        for place in near:
            if place not in self.memory.shut:
                return f"examine {place}"
        likely = [place for place in near if place in self.memory.shut]
        return self._visit(likely) or self._visit(far)

    def _unseen(self) -> list[str]:
        return [place for place in self.places if place not in self.memory.contents]

    def _of_kind(self, kind: str) -> list[str]:
        return [place for place in self.places if kind_of(place) == kind]

    def _say(self, start: str) -> str | None:
        return min((command for command in self.commands if command.startswith(start)), default=None)

    def _treated(self, item: str) -> bool:
        how = DEVICES.get(self.errand.kind)
        return how is None or (how[0], item) in self.memory.treated


WAYS = 6  # commands that go somewhere, of those that a judge may learn on beside the action taken


def expert_episode(task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
    """The expert's episode in the fast engine, at most `env.max_steps` long."""
    rng = random.Random(seed)
    expert = Expert(seed=seed)
    engine = FastEngine(tables_for(task, config))
    observation = engine.reset()
    observations: list[str] = []
    commands: list[tuple[str, ...]] = []
    actions: list[str] = []
    for _ in range(config.env.max_steps):
        shown = offered(observation.commands, config.env.omit_commands)
        action = expert.act(observation.text, observation.commands)
        follow = rng.random() >= random_share and action in shown
        if not follow:
            action = random_action(rng, shown)
            expert.notice(action)
        observations.append(observation.text)
        commands.append(shown)
        actions.append(action)
        observation = engine.step(action)
        if observation.won:
            break
    return Demonstration(
        observations=observations,
        commands=commands,
        actions=actions,
        final_observation=observation.text,
        won=observation.won,
    )


def random_action(rng: random.Random, among: Sequence[str]) -> str:
    """A command of a verb drawn first: uniform over commands, most would be `go to`."""
    verb = rng.choice(sorted({command.split(" ", 1)[0] for command in among}))
    return rng.choice([command for command in among if command.split(" ", 1)[0] == verb])


def to_compare(rng: random.Random, commands: Sequence[str]) -> list[str]:
    """All commands but those that go somewhere, of which there are too many to label: a few of them."""
    going = [command for command in commands if command.startswith("go to ")]
    return [c for c in commands if not c.startswith("go to ")] + sorted(rng.sample(going, min(WAYS, len(going))))


def contrast(rng: random.Random, labelled: Sequence[Labelled], count: int) -> list[Labelled]:
    """Up to `count` of them in pairs: one that helps, and one of the same verb that does not, where there are such.

    Drawn evenly, nine of ten that take something take the wrong thing, and a judge learns that to take is wrong.
    """
    left = list(labelled)
    kept: list[Labelled] = []
    while left and len(kept) < count:
        wanted = 1 if len(kept) % 2 == 0 else -1
        verb = kept[-1].action.split(" ", 1)[0] if wanted < 0 else ""
        found = [one for one in left if one.score == wanted]
        near = [one for one in found if one.action.split(" ", 1)[0] == verb] or found or left
        names = [one.action for one in near]
        chosen = near[names.index(random_action(rng, names))]
        left.remove(chosen)
        kept.append(chosen)
    return kept
