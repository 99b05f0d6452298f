"""Whether a reply answers its question, according to the question's `check` (`questions`).

No text of a model is run here. Mathematics and the verifiers of families are compared in processes with a deadline
(`answer_processes`), programs run in the sandbox, and everything else is parsed in linear time.
"""

from __future__ import annotations

import json
import re

from rla_bridges.adapters.reasoning_items import NAME

from rla.envs.authoring import is_text
from rla.envs.observation import EnvironmentFailure
from rla.plugins import need_package
from rla.text import after_thinking
from rla_programs.coding.data.problems import problem_of
from rla_programs.coding.fences import fenced_blocks, lines_of
from rla_programs.coding.prompts import LONGEST_PROGRAM, TAGS
from rla_programs.coding.running import Runner
from rla_programs.tool.answer_processes import AnswerProcesses
from rla_programs.tool.answer_reading import (
    PUBLISHED_WINDOW,
    choice_in,
    final_answer,
    number_in,
    options_in,
    plain_latex,
)
from rla_programs.tool.answer_worker import UNMADE
from rla_programs.tool.questions import Question

__all__ = ["Verifier", "answer_class", "final_answer", "said_answer"]

PERCENT = re.compile(r"(what|which|how many|find the|as a|the)\s+percent", re.IGNORECASE)
LONGEST_MATH = 2000  # characters of an answer that is compared as mathematics
DEEPEST_MATH = 50  # nesting of braces and brackets
LONGEST_CLASS = 200  # characters of a class of votes


class Verifier:
    """Judges the answers of one stage. Only one event loop may use it; `close` ends its processes.

    `published`: the box within the last 100 characters has to be the same text as the answer, whatever the check,
    except for families and code; the caller passes the complete response. `cpu_s`: seconds per answer. `runner`: needed
    only for questions of check `code`.
    """

    def __init__(
        self, *, published: bool = False, runner: Runner | None = None, workers: int = 2, cpu_s: float = 5.0
    ) -> None:
        self._window = PUBLISHED_WINDOW if published else 0
        self._runner = runner
        self._workers, self._cpu_s = workers, cpu_s
        self._pools: dict[str, AnswerProcesses] = {}

    async def right(self, question: Question, reply: str) -> float:
        """How right the reply is, in [0, 1]; only 1 counts as right.

        Raises EnvironmentFailure if the sandbox or a process failed, UserError if a package is missing.
        """
        if question.check == "code":
            return await self._passed(question, reply)
        answer = final_answer(reply, window=self._window)
        if answer is None:
            return 0.0
        if question.check == "family":
            return await self._accepted(question, answer)
        if self._window or question.check == "exact":
            return float(answer == question.answer)
        if question.check == "math":
            return await self._equal(question, answer)
        said, wanted = _class_of(question, answer), _class_of(question, question.answer)
        return float(said is not None and said == wanted)

    def answered(self, question: Question, reply: str) -> bool:
        """Whether an answer could be parsed from the reply, right or not."""
        return said_answer(question, reply, published=self._window > 0) is not None

    async def close(self) -> None:
        """End the processes. The runner belongs to the caller."""
        while self._pools:
            await self._pools.popitem()[1].close()

    async def _equal(self, question: Question, answer: str) -> float:
        """Equal texts and equal numbers need no process. If there are options, a letter stands for its option's
        text.
        """
        gold, options = alternatives(question.answer), options_in(question.text)
        letter = choice_in(answer, options)
        answers = [answer, options[letter]] if letter in options else [answer]
        if PERCENT.search(question.text):  # if asked for a percentage, 25% is 25
            answers += [
                one.strip().removesuffix("%").removesuffix("\\") for one in answers if one.strip().endswith("%")
            ]
        plain = {_math_class(one) for one in answers} | {one.strip() for one in answers}
        if any(one.strip() in plain or _math_class(one) in plain for one in gold):
            return 1.0
        whole = not any("." in text for text in (*answers, *gold))
        if whole and all(number_in(one) is not None for one in (*answers, *gold)):
            return 0.0
        return max([await self._compared(gold, one) for one in answers if may_be_math(one)], default=0.0)

    async def _compared(self, gold: tuple[str, ...], answer: str) -> float:
        request = {"kind": "math", "gold": gold, "answer": answer}
        return float(await self._pool("math", self._cpu_s).compared(request) or 0.0)

    async def _accepted(self, question: Question, answer: str) -> float:
        family = dict(question.family or {})
        if family.pop("package", None) != NAME:
            raise EnvironmentFailure(f"a question of {question.source} names no package whose verifier is known")
        need_package("reasoning_gym", install="rla-programs[tool]", why=f"a question is of {NAME}")
        pool = self._pool("family", max(self._cpu_s, 30.0))  # the question is made again, which may take seconds
        score = await pool.compared({"kind": "family", "item": family, "answer": answer})
        if score == UNMADE:
            raise EnvironmentFailure(f"reasoning-gym cannot make the question again: {family.get('family')}")
        return float(score or 0.0)

    async def _passed(self, question: Question, reply: str) -> float:
        program = last_program(reply)
        if program is None:
            return 0.0
        if self._runner is None or question.problem is None:
            raise EnvironmentFailure("a question asks for a program, and there is no sandbox or no problem")
        problem = problem_of(question.problem)
        passes = await self._runner.passes(problem, program, problem.tests)
        return sum(passes) / len(passes)

    def _pool(self, kind: str, cpu_s: float) -> AnswerProcesses:
        if kind not in self._pools:
            self._pools[kind] = AnswerProcesses(kind, workers=self._workers, cpu_s=cpu_s, wall_s=12 * cpu_s)
        return self._pools[kind]


def said_answer(question: Question, reply: str, *, published: bool = False) -> str | None:
    """The text to compare or run, exactly as in the reply; None if there is none."""
    if question.check == "code":
        return last_program(reply)
    return final_answer(reply, window=PUBLISHED_WINDOW if published else 0)


def last_program(reply: str) -> str | None:
    """The last closed block fenced as python; None if there is none, or if it is too long or not text."""
    found = [block.text for block in fenced_blocks(lines_of(after_thinking(reply))) if block.tag in TAGS]
    return found[-1] if found and found[-1].strip() and is_text(found[-1], longest=LONGEST_PROGRAM) else None


def alternatives(answer: str) -> tuple[str, ...]:
    """The answers that a ground truth accepts: a JSON list of strings is a list of answers, any other text is one."""
    if answer.startswith("[") and len(answer) < 100_000:
        try:
            found = json.loads(answer)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, list) and found and all(isinstance(one, str) for one in found):
            return tuple(found)
    return (answer,)


def may_be_math(text: str) -> bool:
    """Whether the text may be compared as mathematics: short, with balanced braces, not nested deeply."""
    if len(text) > LONGEST_MATH or "\\boxed" in text:
        return False
    braces = depth = 0
    bare = text.replace("\\\\", "").replace("\\{", "").replace("\\}", "")
    for character in bare:
        braces += (character == "{") - (character == "}")
        depth += (character in "{([") - (character in "})]")
        if braces < 0 or depth > DEEPEST_MATH:
            return False
    return braces == 0


def answer_class(question: Question, answer: str) -> str:
    """The class that an answer votes for in maj@k: equal numbers, letters or texts are one class. Pure and bounded."""
    answer = answer[: 10 * LONGEST_CLASS]
    if question.check in ("number", "choice"):
        return _class_of(question, answer) or answer.strip()
    return _math_class(answer) if question.check == "math" else answer.strip()


def _class_of(question: Question, answer: str) -> str | None:
    """The number or the letter that an answer is; None for any other text."""
    if question.check == "choice":
        return choice_in(answer, options_in(question.text))
    number = number_in(answer)
    return None if number is None else str(number)


def _math_class(answer: str) -> str:
    """A number as a fraction in lowest terms; else the text without typesetting."""
    number = number_in(answer)
    return str(number) if number is not None else plain_latex(answer[:LONGEST_MATH])
