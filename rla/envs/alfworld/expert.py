"""An expert that plays from text alone: it remembers what it has read and explores where things tend to be.

It sees observations and admissible commands, never the engine. Unknown places are explored in the order of

    log(share(object type, receptacle type) / commands needed to look inside) + noise * Gumbel

so that episodes differ and the likely places come first. Another's actions may be mixed in: their results are
read like those of its own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence

from rla.envs.alfworld.goals import TaskKind
from rla.envs.alfworld.memory import Errand, Memory, kind_of, read_errand
from rla.envs.alfworld.priors import share

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
