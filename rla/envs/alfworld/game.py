"""A game: a PDDL problem and its instruction, read from a game file or from a task's payload.

A problem is `(define (problem NAME) (:domain alfred) (:objects ...) (:init ...) (:goal ...))` with typed objects,
ground facts and one of six goals. Costs (`(= ...)`) are dropped because nothing reads them. Names consist of letters,
digits, `_` and `-`, which is checked on reading and on writing. `Layout` indexes the facts.

A game file `game.tw-pddl` is JSON with the problem and a grammar, which holds the instruction. A task's payload is the
JSON object {"problem": PDDL, "sentence", "verbs"}.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from rla.envs.alfworld import catalog
from rla.envs.alfworld.goals import TREATMENTS, Goal, Hint, TaskKind, parse_goal
from rla.errors import UserError
from rla.store.records import content_id

ENV = "alfworld"
Fact = tuple[str, ...]
Point = tuple[float, float, float]

_TYPES = frozenset({"agent", "location", "receptacle", "object", "rtype", "otype"})
_HEAD = re.compile(
    r"\s*\(define\s+\(problem\s+([\w-]+)\s*\)\s*\(:domain\s+alfred\s*\)\s*\(:objects([^()]*)\)\s*", re.ASCII
)
_INIT, _GOAL = "(:init", "(:goal"
_COST = re.compile(r"\(=\s+\([^()]*\)\s+[\d.]+\s*\)|\(:metric[^()]*\([^()]*\)\s*\)")
_FACT = re.compile(r"\(([^()]*)\)")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_NAME_BYTES = (string.ascii_letters + string.digits + "_-" + string.whitespace).encode()
_SENTENCE = re.compile(r"[a-z0-9 ,.']+")
_TASK = re.compile(r'"task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*"Your task is to: ([^"]*)"')
_PUT_TEMPLATE = re.compile(r'action\s+PutObject\s*\{\s*template\s*::\s*"(\w+) ')
MANGLED = str.maketrans({"|": "_bar_", "+": "_plus_", "-": "_minus_", ".": "_dot_"})
_NEVER_TARGETS = frozenset({"SinkBasin", "BathtubBasin", "Toaster"})


@dataclass(frozen=True, slots=True)
class PddlProblem:
    """A scene and its goal. `objects` are (id, PDDL type), `facts` (predicate, *args), in the order of the file."""

    name: str
    objects: tuple[tuple[str, str], ...]
    facts: tuple[Fact, ...]
    goal: Goal

    def pddl(self) -> str:
        """The text that TextWorld loads and `parse_problem` reads back. Raises UserError for bad names."""
        words = {self.name, self.goal.object_type, self.goal.target_type}
        words.update(word for row in (*self.facts, *self.objects) for word in row)
        if bad := sorted(word for word in words if not _NAME.fullmatch(word)):
            raise UserError(f"{bad[0]!r} cannot be a name in a PDDL problem: use letters, digits, '_' and '-'")
        objects = "\n".join(f"    {identifier} - {kind}" for identifier, kind in self.objects)
        facts = "\n".join(f"    ({' '.join(fact)})" for fact in self.facts)
        return (
            f"(define (problem {self.name})\n(:domain alfred)\n(:objects\n{objects}\n)\n"
            f"(:init\n{facts}\n)\n(:goal {self.goal.formula()})\n)\n"
        )


def parse_problem(text: str) -> PddlProblem:
    """The problem in a PDDL text. Raises UserError if the text is not an ALFWorld problem."""
    text = _COST.sub("", text)
    head, start, end = _HEAD.match(text), text.find(_INIT), text.rfind(_GOAL)
    # The bracket of the init section closes before the goal; the goal's and the problem's close at the end.
    init, closing, between = text[start + len(_INIT) : max(end, 0)].rpartition(")")
    formula, final, rest = text[end + len(_GOAL) :].rstrip().removesuffix(")").rpartition(")")
    if head is None or head.end() != start or end < start or between.strip() or rest.strip() or not closing + final:
        raise _refusal("its sections are not name, domain alfred, objects, init, goal")
    goal = parse_goal(formula)
    if goal is None:
        raise _refusal("its goal is none of the six task types")
    facts = _parse_facts(init)
    problem = PddlProblem(name=head[1], objects=_parse_objects(head[2]), facts=facts, goal=goal)
    known = {identifier for identifier, _ in problem.objects}
    if unknown := set[str]().union(*(fact[1:] for fact in facts)) - known:
        raise _refusal(f"its facts name {min(unknown)}, which is not among its objects")
    return problem


def _parse_objects(section: str) -> tuple[tuple[str, str], ...]:
    words = section.split()
    if not _is_plain(section) or len(words) % 3 or {*words[1::3]} - {"-"} or not _TYPES.issuperset(words[2::3]):
        raise _refusal(
            f"its objects section is not a list of 'name - type' with types among {', '.join(sorted(_TYPES))}"
        )
    return tuple(zip(words[::3], words[2::3], strict=True))


def _parse_facts(section: str) -> tuple[Fact, ...]:
    bodies: list[str] = _FACT.findall(section)
    facts = tuple([tuple(body.split()) for body in bodies])
    flat = section.replace("(", " ").replace(")", " ")
    brackets = {section.count("("), section.count(")"), len(facts)}
    # Each word belongs to a fact and each bracket delimits one, so nothing stands between or around the facts.
    if len(brackets) > 1 or len(flat.split()) != sum(map(len, facts)) or not all(facts) or not _is_plain(flat):
        raise _refusal("its init section holds something other than ground facts")
    return facts


def _is_plain(text: str) -> bool:
    return not text.encode().translate(None, _NAME_BYTES)


def _refusal(reason: str) -> UserError:
    return UserError(f"not an ALFWorld problem: {reason}; give the pddl_problem of a pick-and-place game")


def object_facts(identifier: str, kind: str, *, receptacle: str | None, location: str) -> list[Fact]:
    """The facts of an object of type `kind`, except `canContain`."""
    facts: list[Fact] = [("objectType", identifier, f"{kind}Type")]
    if kind not in catalog.FIXED:
        facts.append(("pickupable", identifier))
    facts.extend((name, identifier) for name, types in catalog.CAPABILITIES.items() if kind in types)
    if receptacle is not None:
        facts.append(("inReceptacle", identifier, receptacle))
    return [*facts, ("objectAtLocation", identifier, location)]


def mangled(kind: str, point: Point, basin: str = "") -> str:
    """ALFRED's id of a thing at `point`: `Sink|+01.00|+00.80|-00.25|SinkBasin` in the letters of PDDL."""
    parts = [kind, *(f"{value:+06.2f}" for value in point), *([basin] if basin else [])]
    return "|".join(parts).translate(MANGLED)


def display_names(identifiers: Iterable[str]) -> dict[str, str]:
    """The name that the player sees ("mug 1") of each lower-cased id, sorted by id."""
    ordered = sorted(set(identifiers))
    bases = {one: one.split("_bar_", 1)[0] + "basin" * ("basin" in one) for one in ordered if "_bar_" in one}
    left = Counter(bases.values())
    names = {}
    for identifier in ordered:
        base = bases.get(identifier)
        if base is None:
            names[identifier] = f"{identifier} "
        else:
            names[identifier] = f"{base} {left[base]}"
            left[base] -= 1
    return names


@dataclass(frozen=True, slots=True)
class Layout:
    """The facts of a problem by id. Type names are without "Type". It is shared, so nothing may change it.

    `names`: as the player sees them. `homes`: the receptacles of an object at the start; in real scenes there can be
    several (a pan on two burners). `inside`: the last of them, or the first that a search finds.
    """

    names: dict[str, str]
    receptacles: dict[str, str]
    objects: dict[str, str]
    inside: dict[str, str]
    homes: dict[str, tuple[str, ...]]
    location: dict[str, str]
    can_contain: frozenset[tuple[str, str]]
    flags: frozenset[tuple[str, str]]

    @classmethod
    @lru_cache(maxsize=32)
    def of(cls, problem: PddlProblem) -> Layout:
        pairs: dict[str, dict[str, str]] = {}
        homes: dict[str, tuple[str, ...]] = {}
        can_contain, flags = set(), set()
        for fact in problem.facts:
            if fact[0] == "canContain":
                can_contain.add((fact[1].removesuffix("Type"), fact[2].removesuffix("Type")))
            elif len(fact) == 2:
                flags.add((fact[0], fact[1]))
            elif len(fact) == 3:
                pairs.setdefault(fact[0], {})[fact[1]] = fact[2]
                if fact[0] == "inReceptacle":
                    homes[fact[1]] = (*homes.get(fact[1], ()), fact[2])
        shown = display_names({argument.lower() for fact in problem.facts for argument in fact[1:]})
        things = [identifier for identifier, kind in problem.objects if kind in ("object", "receptacle")]
        return cls(
            names={thing: shown[thing.lower()] for thing in things if thing.lower() in shown},
            receptacles={k: v.removesuffix("Type") for k, v in pairs.get("receptacleType", {}).items()},
            objects={k: v.removesuffix("Type") for k, v in pairs.get("objectType", {}).items()},
            inside=pairs.get("inReceptacle", {}),
            homes=homes,
            location={**pairs.get("receptacleAtLocation", {}), **pairs.get("objectAtLocation", {})},
            can_contain=frozenset(can_contain),
            flags=frozenset(flags),
        )

    @property
    def ids(self) -> dict[str, str]:
        """Player's name -> id."""
        return {name: identifier for identifier, name in self.names.items()}

    def flag(self, name: str, identifier: str) -> bool:
        """Whether `(name identifier)` is a fact."""
        return (name, identifier) in self.flags

    def closed(self, receptacle: str) -> bool:
        return self.flag("openable", receptacle) and not self.flag("opened", receptacle)

    def movable(self, identifier: str) -> bool:
        """Whether an edit may move or remove it."""
        kind = self.objects.get(identifier)
        return kind is not None and kind not in catalog.FIXED and self.flag("pickupable", identifier)

    def within_reach(self, object_type: str) -> list[str]:
        """Ids of the pickupable instances in a receptacle, in the order of the facts."""
        return [
            identifier
            for identifier, kind in self.objects.items()
            if kind == object_type and identifier in self.inside and self.flag("pickupable", identifier)
        ]

    def of_type(self, receptacle_type: str) -> list[str]:
        return [identifier for identifier, kind in self.receptacles.items() if kind == receptacle_type]

    def why_illegal(self, goal: Goal) -> str | None:
        """The first reason why an agent cannot be asked for `goal` here, None if it can. It may be true already."""
        item, target = goal.object_type, goal.target_type
        candidates, treatment = self.within_reach(item), TREATMENTS.get(goal.kind)
        if len(candidates) < goal.needed:
            return f"there are not enough objects of type {item} within reach in the scene"
        if goal.kind is TaskKind.LOOK:
            lamps = [i for i in self.inside if self.objects.get(i) == target and self.flag("toggleable", i)]
            return None if lamps else f"there is no {target} standing in the scene that could be switched on"
        if target in _NEVER_TARGETS or not self.of_type(target):
            return f"there is no {target} in the scene that could be a target"
        if (target, item) not in self.can_contain:
            return f"a {target} cannot contain a {item}"
        if treatment and not any(self.flag(treatment.able, identifier) for identifier in candidates):
            return f"a {item} is not {treatment.able}"
        if treatment and (target == treatment.device or not self.of_type(treatment.device)):
            return f"there is no {treatment.device} in the scene besides the target"
        return None

    def holds(self, goal: Goal) -> bool:
        """Whether `goal` is true at the start, when all lamps are off and the agent holds nothing."""
        if goal.kind is TaskKind.LOOK:
            return False
        treatment = TREATMENTS.get(goal.kind)
        needed = (treatment.able, treatment.state) if treatment else ()
        there = Counter(
            receptacle
            for identifier, homes in self.homes.items()
            if self.objects.get(identifier) == goal.object_type and all(self.flag(name, identifier) for name in needed)
            for receptacle in homes
            if self.receptacles.get(receptacle) == goal.target_type
        )
        return max(there.values(), default=0) >= goal.needed

    def legal_goals(self, kind: TaskKind) -> list[Goal]:
        """All legal goals of `kind` that are not true at the start, sorted by type names."""
        objects = sorted({self.objects[i] for i in self.inside if i in self.objects})
        if kind is TaskKind.LOOK:
            targets = sorted({self.objects[i] for n, i in self.flags if n == "toggleable" and i in self.objects})
        else:
            targets = sorted(set(self.receptacles.values()))
        goals = (Goal(kind, item, target) for item in objects for target in targets)
        return [goal for goal in goals if self.why_illegal(goal) is None and not self.holds(goal)]


class Verbs(StrEnum):
    """The grammar of a game: "put X in/on Y" in the older files, "move X to Y" in the packaged one."""

    PUT = "put"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Game:
    """A problem with the instruction that states it ("put two newspaper in drawer.")."""

    problem: PddlProblem
    sentence: str
    verbs: Verbs

    @classmethod
    def load(cls, path: Path) -> Game:
        """The game in a `game.tw-pddl` file. Raises UserError if the file is missing or not an ALFWorld game."""
        try:
            fields = json.loads(path.read_bytes())
            problem = parse_problem(fields["pddl_problem"])
            sentence, verbs = read_grammar(fields["grammar"])
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}); give a game.tw-pddl file") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(
                f"{path}: not an ALFWorld game, it is not JSON with grammar and pddl_problem; give a game.tw-pddl file"
            ) from error
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        return cls(problem=problem, sentence=sentence, verbs=verbs)

    def payload(self) -> str:
        """The JSON text that `game_of` reads back."""
        fields = {"problem": self.problem.pddl(), "sentence": self.sentence, "verbs": self.verbs.value}
        return json.dumps(fields, sort_keys=True)

    def digest(self) -> str:
        """The identity of a game: objects, facts, goal, hint and verbs, not order or wording."""
        objects = sorted(" ".join(entry) for entry in self.problem.objects)
        facts = sorted(" ".join(fact) for fact in self.problem.facts)
        return content_id(ENV, *self._asked(), self.verbs.value, "\n".join(objects), "\n".join(facts))

    @lru_cache(maxsize=32)  # noqa: B019 (few are kept: a game is compared with each of its edits)
    def likeness(self) -> str:
        """Equal for games that ask the same in the same scene, whatever the ids of their objects.

        An object is described by its type, its facts and its place, so two mugs in one place are interchangeable.
        `canContain` is left out because it follows from the types that are present.
        """
        own: dict[str, list[str]] = {}
        place: dict[str, str] = {}
        for fact in self.problem.facts:
            if len(fact) == 2 or fact[0] == "objectType":
                own.setdefault(fact[1], []).append(" ".join((fact[0], *fact[2:])))
            elif fact[0] in ("inReceptacle", "inReceptacleObject"):
                place[fact[1]] = fact[2]
        objects = {identifier for identifier, kind in self.problem.objects if kind == "object"}
        label = {name: ",".join([*sorted(own.get(name, ())), place.get(name, "")]) for name in objects}
        kept = [fact for fact in self.problem.facts if fact[0] != "canContain"]
        facts = sorted(" ".join(label.get(part, part) for part in fact) for fact in kept)
        return content_id("alike", *self._asked(), "\n".join(facts))

    def _asked(self) -> tuple[str, ...]:
        goal = self.problem.goal
        return goal.kind.value, goal.object_type, goal.target_type, Hint.of(self.sentence).value


@lru_cache(maxsize=512)
def game_of(payload: str) -> Game:
    """The game in a task's payload, parsed once for all episodes. Raises UserError if it is not an ALFWorld game."""
    try:
        fields = json.loads(payload)
        problem, sentence, verbs = (fields[key] for key in ("problem", "sentence", "verbs"))
        return Game(problem=parse_problem(problem), sentence=str(sentence), verbs=Verbs(verbs))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError("the task's payload is not an ALFWorld game; make or import the tasks again") from error


def read_grammar(grammar: str) -> tuple[str, Verbs]:
    """The instruction and the verbs of a game file's `grammar`. Raises UserError."""
    task, put = _TASK.search(grammar), _PUT_TEMPLATE.search(grammar)
    if task is None or put is None or put[1] not in (Verbs.PUT, Verbs.MOVE):
        raise UserError("not an ALFWorld game, its grammar lacks the task sentence or the put command")
    return check_sentence(task[1]), Verbs(put[1])


def check_sentence(sentence: str) -> str:
    """`sentence` unchanged. Raises UserError unless it is plain: TextWorld would evaluate braces in it."""
    if not _SENTENCE.fullmatch(sentence):
        raise UserError(
            f"the task sentence {sentence!r} may hold only a-z, 0-9, space, comma, full stop and apostrophe"
        )
    return sentence
