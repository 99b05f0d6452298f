"""ALFWorld's task files: `game.tw-pddl` (JSON) and the PDDL problem in it, read into records and back.

A problem is `(define (problem NAME) (:domain alfred) (:objects ...) (:init ...) (:goal ...))` with typed
objects, ground facts and one of the six goals of `goals`. Cost declarations (`(= ...)`) are dropped: nothing
reads them. Names are letters, digits, `_` and `-` only, checked on the way in and on the way out.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rla.envs.alfworld.goals import Goal, TaskKind, parse_goal, render_goal
from rla.errors import UserError


def display_names(identifiers: Iterable[str]) -> dict[str, str]:
    """Maps each of the lower-cased `identifiers` to its display name."""
    ordered = sorted(set(identifiers))
    bases = {identifier: _base(identifier) for identifier in ordered if "_bar_" in identifier}
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


def _base(identifier: str) -> str:
    name = identifier.split("_bar_", 1)[0]
    return f"{name}basin" if "basin" in identifier else name


__all__ = ["Game", "Goal", "PddlProblem", "TaskKind", "Verbs", "load_game", "parse_problem", "render_problem"]

TYPES = frozenset({"agent", "location", "receptacle", "object", "rtype", "otype"})


class Verbs(StrEnum):
    """Which grammar a game speaks: the older files' "put X in/on Y" or the packaged "move X to Y"."""

    PUT = "put"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class PddlProblem:
    """A scene and its goal. `objects` are (id, PDDL type), `facts` (predicate, *args) as in the file."""

    name: str
    objects: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, ...], ...]
    goal: Goal


@dataclass(frozen=True, slots=True)
class Game:
    """A problem with the sentence that states it ("put two newspaper in drawer.").

    `withheld`: commands that it does not offer, sorted (`rla.envs.alfworld.tables`). Only an edit withholds any.
    """

    problem: PddlProblem
    sentence: str
    verbs: Verbs
    withheld: tuple[str, ...] = ()


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


def parse_problem(text: str) -> PddlProblem:
    """Reads the PDDL text of a problem. Raises `UserError` on anything that is not an ALFWorld problem."""
    name, objects, init, goal_text = _split_sections(_COST.sub("", text))
    goal = parse_goal(goal_text)
    if goal is None:
        raise _refusal("its goal is none of the six task types")
    facts = _parse_facts(init)
    problem = PddlProblem(name=name, objects=_parse_objects(objects), facts=facts, goal=goal)
    known = {identifier for identifier, _ in problem.objects}
    unknown = set[str]().union(*(fact[1:] for fact in facts)) - known
    if unknown:
        raise _refusal(f"its facts name {min(unknown)}, which is not among its objects")
    return problem


def render_problem(problem: PddlProblem) -> str:
    """PDDL that TextWorld loads and `parse_problem` reads back as an equal `Problem`. Raises `UserError`."""
    words = {problem.name, problem.goal.object_type, problem.goal.target_type}
    words.update(word for fact in problem.facts for word in fact)
    words.update(word for entry in problem.objects for word in entry)
    bad = sorted(word for word in words if not _NAME.fullmatch(word))
    if bad:
        raise UserError(f"{bad[0]!r} cannot be a name in a PDDL problem: use letters, digits, '_' and '-'")
    objects = "\n".join(f"    {identifier} - {kind}" for identifier, kind in problem.objects)
    facts = "\n".join(f"    ({' '.join(fact)})" for fact in problem.facts)
    return (
        f"(define (problem {problem.name})\n(:domain alfred)\n(:objects\n{objects}\n)\n"
        f"(:init\n{facts}\n)\n(:goal {render_goal(problem.goal)})\n)\n"
    )


def load_game(path: Path, *, force_packaged: bool = False) -> Game:
    """Reads a `game.tw-pddl`. `force_packaged` plays it with the packaged "move X to Y" grammar.

    Raises `UserError` naming the file where it is missing or is not an ALFWorld game.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a game.tw-pddl file") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not an ALFWorld game, it is not JSON; give a game.tw-pddl file") from error
    fields = content if isinstance(content, dict) else {}
    grammar, text = fields.get("grammar"), fields.get("pddl_problem")
    if not isinstance(grammar, str) or not isinstance(text, str):
        raise UserError(f"{path}: not an ALFWorld game, it has no grammar and pddl_problem; give a game.tw-pddl file")
    try:
        problem = parse_problem(text)
        sentence, verbs = read_grammar(grammar)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return Game(problem=problem, sentence=sentence, verbs=Verbs.MOVE if force_packaged else verbs)


def read_grammar(grammar: str) -> tuple[str, Verbs]:
    """The task sentence and the verbs of a game's `grammar` field. Raises `UserError`."""
    task, put = _TASK.search(grammar), _PUT_TEMPLATE.search(grammar)
    if task is None or put is None or put[1] not in (Verbs.PUT, Verbs.MOVE):
        raise UserError("not an ALFWorld game, its grammar lacks the task sentence or the put command")
    return check_sentence(task[1]), Verbs(put[1])


def check_sentence(sentence: str) -> str:
    """`sentence`, once it is known to be plain: TextWorld evaluates braces in it; others cut it short."""
    if not _SENTENCE.fullmatch(sentence):
        raise UserError(
            f"the task sentence {sentence!r} may hold only a-z, 0-9, space, comma, full stop and apostrophe"
        )
    return sentence


def _split_sections(text: str) -> tuple[str, str, str, str]:
    head, start, goal = _HEAD.match(text), text.find(_INIT), text.rfind(_GOAL)
    # The section's own bracket closes before the goal, the goal's and the problem's at the end.
    init, closing, between = text[start + len(_INIT) : max(goal, 0)].rpartition(")")
    goal_text, end, rest = text[goal + len(_GOAL) :].rstrip().removesuffix(")").rpartition(")")
    if head is None or head.end() != start or goal < start or between.strip() or rest.strip() or not closing + end:
        raise _refusal("its sections are not name, domain alfred, objects, init, goal")
    return head[1], head[2], init, goal_text


def _is_plain(text: str) -> bool:
    return not text.encode().translate(None, _NAME_BYTES)


def _parse_objects(section: str) -> tuple[tuple[str, str], ...]:
    if not _is_plain(section):
        raise _refusal("its objects section holds signs other than letters, digits, '_' and '-'")
    flat = section.split()
    if len(flat) % 3 == 0 and set(flat[1::3]) == {"-"} and TYPES.issuperset(flat[2::3]):
        return tuple(zip(flat[::3], flat[2::3], strict=True))
    # PDDL also lets several names share a type: "a b - object".
    objects: list[tuple[str, str]] = []
    pending: list[str] = []
    words = iter(flat)
    for word in words:
        if word != "-":
            pending.append(word)
            continue
        kind = next(words, "")
        if kind not in TYPES or not pending:
            raise _refusal(f"its objects section has the type {kind!r}, expected one of {', '.join(sorted(TYPES))}")
        objects.extend((identifier, kind) for identifier in pending)
        pending.clear()
    if pending:
        raise _refusal(f"the object {pending[0]} has no type")
    return tuple(objects)


def _parse_facts(section: str) -> tuple[tuple[str, ...], ...]:
    bodies: list[str] = _FACT.findall(section)
    facts = tuple([tuple(body.split()) for body in bodies])
    flat = section.replace("(", " ").replace(")", " ")
    brackets = {section.count("("), section.count(")"), len(facts)}
    # Every word inside a fact, every bracket a fact's own: so nothing stands between or around the facts.
    if len(brackets) > 1 or len(flat.split()) != sum(map(len, facts)) or not all(facts) or not _is_plain(flat):
        raise _refusal("its init section holds something other than ground facts")
    return facts


def _refusal(reason: str) -> UserError:
    return UserError(f"not an ALFWorld problem: {reason}; give the pddl_problem of a pick-and-place game")
