"""Demonstrations to clone a policy from: a teacher calls the tool and answers with the result that it read.

    question -> call -> result -> ... -> answer        "= 42" in the format `short`, "\\boxed{42}" in the others

Nothing is executed here. The output of our families' programs is known by construction, and tests check on samples that
the sandbox gives exactly the same texts. With probability `random_share` a demonstration is weak, so that reinforcement
learning can improve on it:

    slip       one digit or letter of the question is copied wrongly, and the wrong result becomes the answer
    broken     the call cannot be parsed, or its program has a syntax error: the error is read, and the call corrected
    guess      an answer of about the right size, without the tool

If the policy has no tool, an episode is only its answer, and every weak one is a guess.
"""

from __future__ import annotations

import random
import string
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rla_bridges.adapters.reasoning_families import NoItem
from rla_bridges.adapters.reasoning_items import NAME

from rla.envs.protocols import Demonstration
from rla.errors import UserError
from rla.seeds import derive
from rla.store.records import Task
from rla_programs.tool.calls import TOOL, CallFormat, Malformed, ToolCall
from rla_programs.tool.episode import TAKEN
from rla_programs.tool.families.generated import Made
from rla_programs.tool.families.reasoning_programs import PROGRAMS
from rla_programs.tool.families.registry import question_family
from rla_programs.tool.generating import OWN_PACKAGE, package_and_item, question_of_item, remade
from rla_programs.tool.questions import Question, question_of
from rla_programs.tool.results import harmless

WEAK = ("slip", "slip", "broken", "guess")  # drawn with equal probability
NEIGHBOURS = 8  # items whose programs answer another question
TRIES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """Replies, with the answer to each but the last, which is the final answer."""

    replies: tuple[str, ...]
    results: tuple[str, ...]
    right: bool


def taught_rounds(
    task: Task, calls: CallFormat, *, seed: int, random_share: float, shown: str | None = None, tool: bool = True
) -> Demonstration:
    """An episode as warm-start clones it: observation 0 is the question, the others are results of calls.

    `shown`: the question as the policy reads it, if it differs from the bare text. `tool`: whether the policy has one.
    Raises UserError for a question without a teacher; that does not depend on the tool.
    """
    asked = question_of(task)
    rng = random.Random(derive(seed, "tool", task.task_id))
    script = scripted(task, asked, calls, rng=rng, share=random_share, tool=tool)
    return as_demonstration(shown or asked.text, script)


def as_demonstration(opening: str, script: Scripted) -> Demonstration:
    return Demonstration(
        observations=[opening, *script.results],
        commands=[() for _ in script.replies],
        actions=list(script.replies),
        final_observation=TAKEN,
        won=script.right,
    )


def solver_reply(
    task: Task, history: Sequence[tuple[str, str]], calls: CallFormat, *, seed: int = 0, tool: bool = True
) -> str:
    """The next reply of a scripted teacher that plays real episodes. `history`: (reply, answer to it) so far.

    It answers with the result that it was really given, right or wrong, so the trajectory is consistent.
    """
    asked = question_of(task)
    rng = random.Random(derive(seed, "tool", task.task_id))
    script = scripted(task, asked, calls, rng=rng, share=0.0, tool=tool)
    if len(history) < len(script.replies) - 1:
        return script.replies[len(history)]
    read = history[-1][1].strip() if history else ""
    return final_reply(calls, read) if read and script.results and read != script.results[-1] else script.replies[-1]


def scripted(
    task: Task, asked: Question, calls: CallFormat, *, rng: random.Random, share: float, tool: bool
) -> Scripted:
    """The teacher's replies; weak ones with probability `share`. Equal random numbers give equal scripts."""
    made = made_of_task(task, asked)
    weak = rng.choice(WEAK) if rng.random() < share else ""
    if not (tool or weak):
        return Scripted(replies=(final_reply(calls, made.answer),), results=(), right=made.answer == asked.answer)
    if weak == "guess" or not tool:
        return Scripted(replies=(final_reply(calls, near_answer(asked, rng)),), results=(), right=False)
    if weak == "slip":
        made = slipped_item(asked, rng) or made
    replies = [call_reply(calls, one.program) for one in made.rounds]
    results = [one.printed for one in made.rounds]
    if weak == "broken":
        broken = broken_call(replies[0], calls, made.rounds[0].program, rng)
        replies, results = [broken[0], *replies], [broken[1], *results]
    right = made.answer == asked.answer
    return Scripted(replies=(*replies, final_reply(calls, made.answer)), results=tuple(results), right=right)


def made_of_task(task: Task, asked: Question) -> Made:
    """Raises UserError for a question without a teacher."""
    try:
        made = remade(asked)
    except NoItem as reason:
        raise UserError(f"task {task.task_id}: reasoning-gym cannot make it ({reason}); make new tasks") from None
    if made is None:
        raise UserError(
            f"task {task.task_id} ({asked.source}) has no program to show; set warm_start.enabled: false, leave the "
            "kind out of tasks.kinds, or learn from collected trajectories"
        )
    if made.question != asked.text:
        raise UserError(f"task {task.task_id}: {asked.source} makes another question of it now; make new tasks")
    return made


def call_reply(calls: CallFormat, program: str, text: str = "") -> str:
    return calls.render(text, [ToolCall(name=TOOL, arguments={"code": program})])


def final_reply(calls: CallFormat, answer: str) -> str:
    """A chat model, which is told of tools, puts its answer in a box; a small model writes it in a line."""
    return f"\\boxed{{{answer}}}" if calls.schemas else f"= {answer}"


def slipped_item(asked: Question, rng: random.Random) -> Made | None:
    """The question as answered by somebody who copies it wrongly. For reasoning-gym it is another item of the same
    levels, because the output of a changed program is unknown. None if there is none.
    """
    found = package_and_item(asked)
    if found is None:
        return None
    package, item = found
    if package == OWN_PACKAGE:
        return question_family(item.family).slipped(item.levels, item.seed, item.index, rng)
    others = [made for made in neighbours(asked) if made.answer != asked.answer]
    return rng.choice(others) if others else None


def neighbours(asked: Question) -> Iterator[Made]:
    """Other items of reasoning-gym of the same levels, with their programs."""
    found = package_and_item(asked)
    if found is None or found[0] != NAME or found[1].family not in PROGRAMS:
        return
    item = found[1]
    for step in range(1, NEIGHBOURS + 1):
        index = item.index + step if item.index < NEIGHBOURS else item.index - step
        try:
            other = question_of_item(NAME, replace(item, index=index))
            made = None if other is None else remade(other)
        except NoItem:
            continue
        if made is not None:
            yield made


def near_answer(asked: Question, rng: random.Random) -> str:
    """Another answer of the same size, with one or two of its digits or letters changed."""
    signs = list(asked.answer)
    places = [place for place, sign in enumerate(signs) if sign.isalnum()]
    if not places:
        return "0"
    for place in rng.sample(places, min(2, len(places))):
        others = "123456789" if signs[place].isdigit() else string.ascii_lowercase
        signs[place] = rng.choice(others.replace(signs[place], ""))
    return "".join(signs)


def broken_call(reply: str, calls: CallFormat, program: str, rng: random.Random) -> tuple[str, str]:
    """A call that fails, and the tool's message: the end of the call, or of its program, is missing."""
    for _ in range(TRIES if calls.schemas else 0):
        cut = reply[: -rng.randint(1, max(1, len(reply) // 3))]
        read = calls.parse(cut).calls
        if read and isinstance(read[0], Malformed):
            return cut, harmless(read[0].reason)  # as the tool reports it
    short = program.rstrip()
    for _ in range(TRIES):
        short = short[:-1].rstrip()
        fault = syntax_fault(short)
        if fault:
            return call_reply(calls, short), fault
    return call_reply(calls, "print("), syntax_fault("print(")


def syntax_fault(program: str) -> str:
    """The tool's message for a program that cannot be compiled; empty if it compiles, or if the result is unknown.

    The program is compiled and never run. Callers limit the length of programs that somebody else wrote.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(program, "program.py", "exec")
    except SyntaxError as error:
        return "".join(traceback.format_exception_only(error)).rstrip("\n")
    except (ValueError, OverflowError, MemoryError, RecursionError):
        return ""
    return ""
