"""Stitched trajectories: the baseline that real ones are compared with (`arXiv 2510.11701`, section 3.1).

Real: a teacher calls the tool, waits for the result and continues from it. Stitched: the reasoning is written as if
done by hand, and a call replaces one of its steps afterwards. Nothing is executed: the true value is inserted as the
result, whatever the code would print. So there is

    the value before the call     the text states it, because the step was computed in words
    code that is a fragment       with probability `fragments` it prints nothing, or uses names that only the text has
    an answer next to the result  the last turn repeats the value of the text and does not mention a result

A policy that clones this learns to state values that it cannot know, and to send code that does not help it.
"""

from __future__ import annotations

import random

from rla.envs.protocols import Demonstration
from rla.seeds import derive
from rla.store.records import Task
from rla_programs.tool.calls import CallFormat
from rla_programs.tool.demonstrating import Scripted, as_demonstration, call_reply, final_reply, made_of_task
from rla_programs.tool.families.generated import Round
from rla_programs.tool.questions import question_of

FRAGMENTS = 2 / 3  # of calls whose code does not print its inserted result
PRINTED = "print("


def stitched(
    task: Task, calls: CallFormat, *, seed: int, shown: str | None = None, fragments: float = FRAGMENTS
) -> Demonstration:
    """The stitched trajectory of a question with its right answer. Raises UserError for a question without a teacher.

    `fragments`: the probability that the code of a call is a fragment; with 0 only the text around the calls is
    stitched.
    """
    asked = question_of(task)
    made = made_of_task(task, asked)
    rng = random.Random(derive(seed, "stitched", task.task_id))
    replies = [
        call_reply(calls, _stitched_code(one, rng, fragments), text=f"Step {number} gives {one.printed}.")
        for number, one in enumerate(made.rounds, 1)
    ]
    last = f"So it is {made.answer}.\n{final_reply(calls, made.answer)}"
    script = Scripted(replies=(*replies, last), results=tuple(one.printed for one in made.rounds), right=True)
    return as_demonstration(shown or asked.text, script)


def _stitched_code(one: Round, rng: random.Random, fragments: float) -> str:
    """The code of a step: the complete program, or a fragment of it. An assignment prints nothing; an undefined name is
    an error.
    """
    head, found, inside = one.program.rpartition(PRINTED)
    if rng.random() >= fragments or not found or not inside.endswith(")"):
        return one.program
    return f"{head}x={inside[:-1]}" if rng.random() < 0.5 else f"{PRINTED}x)"
