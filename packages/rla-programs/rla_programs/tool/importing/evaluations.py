"""Files of questions and answers: AIME, GPQA, and columns that are called question and answer.

    aime    Problem, Answer, or problem, answer
    gpqa    problem, solution (a letter), domain; or Question, Correct Answer, Incorrect Answer 1 to 3
    plain   question or problem, answer; if an answer contains #### (as in GSM8K), the part after the last one

The options of a GPQA question are shuffled with a seed from the question's own text, so each import gives the same
order.
"""

from __future__ import annotations

import random

from rla.seeds import derive
from rla_programs.coding.data.problems import InvalidProblem
from rla_programs.coding.importing.columns import Row, optional, text
from rla_programs.tool.importing.found import FoundQuestion, answer_text, is_letter, named_source, question_text

OPTIONS = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
LETTERS = "ABCD"
MARK = "####"


def aime(row: Row) -> FoundQuestion:
    """A row of AIME."""
    question = question_text(_first(row, "Problem", "problem"))
    answer = answer_text(row.get("Answer", row.get("answer")))
    return FoundQuestion(text=question, check="math", answer=answer, source=named_source(row))


def gpqa(row: Row) -> FoundQuestion:
    """A row of GPQA, in either form."""
    if "Correct Answer" in row:
        return _with_options(row)
    question, letter = question_text(text(row, "problem")), text(row, "solution").strip()
    letter = letter.removeprefix("\\boxed{").removesuffix("}").strip().strip("().").upper()
    if not is_letter(letter):
        raise InvalidProblem("a solution that is not a letter")
    domain = optional(row, "domain")
    return FoundQuestion(text=question, check="choice", answer=letter, source=named_source(row), domain=domain)


def _with_options(row: Row) -> FoundQuestion:
    stem, options = text(row, "Question").strip(), [text(row, name).strip() for name in OPTIONS]
    if len(set(options)) < len(options) or not all(options):
        raise InvalidProblem("an option that is empty or there twice")
    order = random.Random(derive("gpqa", stem)).sample(range(len(options)), len(options))
    listed = "\n".join(f"({letter}) {options[place]}" for letter, place in zip(LETTERS, order, strict=True))
    return FoundQuestion(
        text=question_text(f"{stem}\n\n{listed}"),
        check="choice",
        answer=LETTERS[order.index(0)],
        source=named_source(row),
        domain=optional(row, "High-level domain"),
    )


def question_answer(row: Row) -> FoundQuestion:
    """A row of any other data set with a question and an answer."""
    answer = row.get("answer")
    if isinstance(answer, str) and MARK in answer:
        answer = answer.rpartition(MARK)[2].strip()
    question = question_text(_first(row, "question", "problem"))
    return FoundQuestion(text=question, check="math", answer=answer_text(answer), source=named_source(row))


def _first(row: Row, *names: str) -> str:
    """The first of the columns that exists. Raises `InvalidProblem`."""
    return text(row, next((name for name in names if name in row), names[0]))
