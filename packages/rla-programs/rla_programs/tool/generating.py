"""Generated questions: from our own families, from reasoning-gym, and from the built-in coding problems.

| kind | question | check | `Question.family` |
|---|---|---|---|
| `arithmetic` and the other names of `families.registry.OWN` | ours | `number` | package `own` |
| `reasoning-gym:products` | the package's | `family` | package `reasoning-gym` |
| `coding` | a problem of `rla_programs.coding.builtin` | `code` | nothing; `Question.problem` |

An `Item` can make a question again, as in the environment reasoning-gym. The text of a question decides whether it is
held out (`is_held_out`), the parameters of a coding problem do. So no question is on both sides, whatever the levels
and the seeds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, zip_longest

from rla_bridges.adapters.reasoning_families import WITHOUT_ANSWER, opened_family
from rla_bridges.adapters.reasoning_items import (
    DRY,
    NAME,
    SEEDS,
    Item,
    drawn_items,
    index_range,
    is_held_out,
    known_answer,
    made_entry,
    question_likeness,
)

from rla.errors import UserError
from rla.seeds import derive
from rla_programs.coding.builtin.drawing import LEVELS, drawn_problems
from rla_programs.coding.data.problems import problem_payload, question
from rla_programs.tool.families.generated import Made, Round
from rla_programs.tool.families.reasoning_programs import PROGRAMS, teacher_program
from rla_programs.tool.families.registry import drawn_levels, question_family
from rla_programs.tool.questions import Question

OWN_PACKAGE, GYM = "own", f"{NAME}:"
CODING = "coding"
KEY = "tasks.kinds"
TESTS = 8  # of a coding problem


def drawn_of_kind(
    kind: str, *, level: int, spread: int = 0, count: int, held_out: bool, seed: int
) -> Iterator[Question]:
    """Up to `count` different questions of the levels from `level` to `level + spread`. In our families each attribute
    has a random one of these levels; in other kinds all attributes have the same one, and the levels alternate. Raises
    UserError for an unknown kind.
    """
    levels = range(level, level + spread + 1)
    if kind == CODING:
        return _coding(levels, count=count, held_out=held_out, seed=seed)
    if kind.startswith(GYM):
        return islice(_of_gym(kind.removeprefix(GYM), levels, count=count, held_out=held_out, seed=seed), count)
    return islice(_own(kind, levels, held_out=held_out, seed=seed), count)


def question_of_item(package: str, item: Item) -> Question | None:
    """None if the answer is unknown. Raises NoItem if there is no such item."""
    content = {"package": package, **item.content()}
    if package == OWN_PACKAGE:
        made = question_family(item.family).item(item.levels, item.seed, item.index)
        return Question(text=made.question, check="number", answer=made.answer, source=item.family, family=content)
    text, answer = made_entry(item)["question"], known_answer(item)
    if not isinstance(text, str) or not text.strip() or answer is None:
        return None
    return Question(text=text, check="family", answer=answer, source=GYM + item.family, family=content)


def package_and_item(asked: Question) -> tuple[str, Item] | None:
    """The package and item that make the question again; None for a question without a family. Raises UserError."""
    if asked.family is None:
        return None
    try:
        fields = dict(asked.family)
        package, item = fields.pop("package"), Item(**fields)
        whole = isinstance(item.levels, dict) and isinstance(item.values, dict)
        sound = whole and type(item.seed) is type(item.index) is int and package in (OWN_PACKAGE, NAME)
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise UserError(f"a question of {asked.source} names no family that can make it again; make the tasks again")
    return package, item


def remade(asked: Question) -> Made | None:
    """The question with the calls of a teacher; None if none is known. Raises UserError, NoItem."""
    found = package_and_item(asked)
    if found is None:
        return None
    package, item = found
    if package == OWN_PACKAGE:
        return question_family(item.family).item(item.levels, item.seed, item.index)
    program = teacher_program(item.family, made_entry(item)) if item.family in PROGRAMS else None
    if program is None:
        return None
    rounds = (Round(program=program, printed=asked.answer),)
    return Made(question=asked.text, answer=asked.answer, rounds=rounds)


def likeness_of(asked: Question) -> str:
    """Equal for questions that differ only in white space and capitals. Without a family the sources count as well."""
    generated = asked.family is not None or asked.problem is not None
    return question_likeness(asked.source.removeprefix(GYM) if generated else "", asked.text)


def _own(name: str, levels: Sequence[int], *, held_out: bool, seed: int) -> Iterator[Question]:
    family = question_family(name)
    base, seen, dry = derive(seed, "tool", name) % SEEDS, set[str](), 0
    start = Item(family=name, levels={}, values={}, seed=base, index=0)
    for index in index_range(name, held_out=held_out):
        rng = random.Random(derive(base, "levels", index))
        made = question_of_item(OWN_PACKAGE, replace(start, index=index, levels=drawn_levels(family, levels, rng)))
        assert made is not None  # each of our items has an answer
        likeness, dry = likeness_of(made), dry + 1
        if dry > DRY:
            return
        if likeness not in seen and is_held_out(likeness) is held_out:
            dry = 0
            seen.add(likeness)
            yield made


def _of_gym(name: str, levels: Sequence[int], *, count: int, held_out: bool, seed: int) -> Iterator[Question]:
    family, seen = opened_family(name, key=KEY), set[str]()
    if name in WITHOUT_ANSWER:
        raise UserError(f"{KEY} has {GYM}{name}, which keeps no answers; choose another family")
    of_levels = [drawn_items(name, family.at(level), {}, count=count, held_out=held_out, seed=seed) for level in levels]
    for item in filter(None, chain.from_iterable(zip_longest(*of_levels))):
        found = question_of_item(NAME, item)
        assert found is not None  # drawn items have known answers
        if (likeness := likeness_of(found)) not in seen:
            seen.add(likeness)
            yield found


def _coding(levels: Sequence[int], *, count: int, held_out: bool, seed: int) -> Iterator[Question]:
    """`levels` count from 0, the problems' levels from 1; higher levels mean the highest."""
    theirs = sorted({min(LEVELS[0] + level, LEVELS[-1]) for level in levels})
    for drawn in drawn_problems(seed=seed, count=count, tests=TESTS, levels=theirs, held_out=held_out):
        text, payload = question(drawn.problem), problem_payload(drawn.problem)
        yield Question(text=text, check="code", answer="", source=CODING, problem=payload)
