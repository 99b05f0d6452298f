"""The prompt for a language model that rewrites a problem, and the results of the programs: `ProposalPrompt` and
`Course`.

The critique is the results themselves: the share of the programs that pass each test. The prompt says that the outputs
that the model writes are claims, which programs have to confirm.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rla.envs.chat_prompts import QUOTED, quoted
from rla.envs.protocols import Course, Message, ProposalView
from rla.store.records import Task
from rla_programs.coding.data.problems import Problem, problem_of, question
from rla_programs.coding.editing import edit_schema
from rla_programs.coding.service import passed
from rla_programs.coding.writing import texts_of

LONGEST_SHOWN = 200  # characters: longer tests are left out of the prompt, with their numbers
RUBRIC = """You change programming problems on which a policy learns to write programs: {wanted}. Stay close to the \
problem below in topic, skill and form of input and output, and change its difficulty in a controlled way.

Answer with one JSON object and nothing else: {{"rewrite": {{"statement", "solution", "tests", "inputs"}}}}.
- "statement": the whole new problem. {form}
- "solution": a correct Python 3 program for it.
- "tests": at least 4 objects {{"input", "output"}}, both texts, which cover edge cases and catch plausible mistakes.
- "inputs": at least 4 further inputs, as texts, none of them a test's.
The solution is run on your tests; other programs, written from your statement alone, have to pass them too and to \
agree with the solution on the further inputs. So the statement has to say everything, and every output has to be right.

{quoted}"""
WANTED = {
    "harder": "make this one harder, but still solvable: it is solved too often",
    "easier": "make this one easier: it is solved too seldom",
}
STDIO_FORM = "The program reads stdin and prints; an input is the text on stdin, an output what is printed."
FUNCTION_FORM = (
    "The program defines the function `{name}`; an input holds one argument per line, as JSON, and an output the value "
    "that is returned, as JSON."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed(Course):
    """`passed`: for each given test the number of programs that pass it."""

    passed: tuple[int, ...] = ()

    def told(self) -> str:
        if not self.episodes:
            return ""
        counts = ", ".join(f"{number}: {count}" for number, count in enumerate(self.passed, 1))
        return f"{self.won} of {self.episodes} programs pass all tests; programs that pass test {counts}"


def program_course(episodes: Sequence[Mapping[str, Any]]) -> Executed:
    """`episodes`: outcome and final_observation of one task's trajectories; those without a program are left out."""
    rows = [row for episode in episodes if episode["steps"] and (row := passed(episode["final_observation"]))]
    return Executed(
        episodes=len(rows),
        won=sum(all(row) for row in rows),
        phases=(),
        spent=(),
        passed=tuple(sum(column) for column in zip(*rows, strict=True)),
    )


class RewritePrompt:
    """`rla.envs.protocols.ProposalPrompt` of the coding environment."""

    criticised = False

    def messages(self, task: Task, view: ProposalView) -> list[Message]:
        problem = problem_of(task.payload)
        form = STDIO_FORM if problem.function is None else FUNCTION_FORM.format(name=problem.function)
        parts = {
            "Problem": question(problem),
            "Tests": "\n".join(_shown_tests(problem)) or "(too long to be shown)",
            "Programs": f"{view.accuracy:.0%} are right. {view.critique}",
        }
        rubric = RUBRIC.format(wanted=WANTED[view.direction], form=form, quoted=QUOTED)
        return [{"role": "user", "content": f"{rubric}\n\n{quoted(parts)}\n\nThe JSON object:"}]

    def schema(self, task: Task) -> Mapping[str, Any]:
        """Only a rewrite: relatives are for rules."""
        schema = copy.deepcopy(edit_schema())
        del schema["properties"]["relative"]
        return {**schema, "required": ["rewrite"]}


def _shown_tests(problem: Problem) -> list[str]:
    """The tests by number, as JSON, as far as they are short."""
    found = []
    for number, test in enumerate(problem.tests, 1):
        texts = texts_of(test)
        if len(texts.input) + len(texts.output) <= LONGEST_SHOWN:
            found.append(f"{number}: {json.dumps({'input': texts.input, 'output': texts.output}, ensure_ascii=False)}")
    return found
