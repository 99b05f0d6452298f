"""Texts that a small new model may have to read and write: questions, calls, results, errors and answers.

The tokenizer of `rla.models.init` learns from them which words are one token. Numbers of three digits and
more go digit by digit, words that are drawn at random letter by letter, so what has to be copied is spelled the same
way in a question, a program and a result. Numbers of one or two digits are one token each: our families avoid two
digits in questions, and results of two digits are copied as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rla.errors import UserError
from rla.store.records import Task
from rla_programs.tool.calls import CallFormat
from rla_programs.tool.demonstrating import taught_rounds
from rla_programs.tool.questions import question_of
from rla_programs.tool.results import SILENT

SHOWN = (0.0, 1.0, 1.0)  # shares of weakness of the demonstrations of each task
AS_OFTEN = 24  # a piece that occurs so often becomes a token


def question_texts(
    tasks: Iterable[Task], calls: CallFormat, *, seed: int, verdicts: Sequence[str] = (), tool: bool = True
) -> Iterator[str]:
    """All texts of a few demonstrations of each task; of a task without a teacher the question and its answer.

    `verdicts`: what a judge may say. Their words become tokens, else a verdict would be spelled in letters.
    `tool`: whether the policy has one.
    """
    yield SILENT
    yield from list(verdicts) * AS_OFTEN
    for task in tasks:
        asked = question_of(task)
        for number, share in enumerate(SHOWN):
            try:
                shown = taught_rounds(task, calls, seed=seed + number, random_share=share, tool=tool)
            except UserError:
                yield from (asked.text, asked.answer)
                break
            yield from (*shown.observations, *shown.actions, shown.final_observation)
