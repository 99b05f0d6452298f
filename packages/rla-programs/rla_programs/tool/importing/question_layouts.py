"""The data set that a file of questions belongs to, recognised by its columns or given by name.

The layouts in `rla_programs.coding.importing.layouts` are for questions that ask for a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import PurePath

from rla.errors import UserError
from rla_programs.coding.data.problems import Problem, question
from rla_programs.coding.importing.apart import Order, Reader, RowRead, with_small_tests
from rla_programs.coding.importing.columns import Row
from rla_programs.coding.importing.layouts import LAYOUTS
from rla_programs.coding.importing.livecode import LIVECODE
from rla_programs.tool.importing.evaluations import aime, gpqa, question_answer
from rla_programs.tool.importing.found import FoundQuestion, question_text
from rla_programs.tool.importing.sources import source_of
from rla_programs.tool.importing.verl import evaluated_livecode, verl


@dataclass(frozen=True, slots=True)
class QuestionLayout:
    """A name, columns that no earlier layout has together, and a function that makes a question of a row."""

    name: str
    columns: frozenset[str]
    read: Callable[[Row], FoundQuestion]


def _program(read: Callable[[Row], Problem]) -> Callable[[Row], FoundQuestion]:
    """A reader for rows of programming problems."""

    def found(row: Row) -> FoundQuestion:
        problem = read(row)
        text = question_text(question(problem))
        return FoundQuestion(text=text, check="code", source=problem.source.partition("/")[0], problem=problem)

    return found


OWN = (
    QuestionLayout("verl", frozenset({"prompt", "reward_model"}), verl),
    QuestionLayout(LIVECODE, frozenset({"problem", "ability", "reward_model"}), evaluated_livecode),
    QuestionLayout("gpqa", frozenset({"problem", "solution", "domain"}), gpqa),
    QuestionLayout("gpqa", frozenset({"Question", "Correct Answer"}), gpqa),
    QuestionLayout("aime", frozenset({"Problem", "Answer"}), aime),
)
CODE = tuple(QuestionLayout(name, layout.columns, _program(layout.read)) for name, layout in LAYOUTS.items())
QUESTIONS = (
    QuestionLayout("aime", frozenset({"problem", "answer"}), aime),
    QuestionLayout("plain", frozenset({"question", "answer"}), question_answer),
    QuestionLayout("plain", frozenset({"problem", "answer"}), question_answer),
)
ALL = (*OWN, *CODE, *QUESTIONS)
NAMES = tuple(dict.fromkeys(layout.name for layout in ALL))


def check_question_layout(name: str) -> None:
    """Raises UserError for an unknown layout."""
    if name and name not in NAMES:
        raise UserError(f"env.own.layout: layout {name!r} is unknown; choose from {', '.join(NAMES)}")


def question_layout_of(name: str, columns: Iterable[str], *, where: str) -> QuestionLayout:
    """The layout with these columns, among those with the name if one is given. The columns problem and answer mean
    AIME only if the file's name contains aime. Raises UserError that names the file.
    """
    check_question_layout(name)
    found = set(columns)
    for layout in ALL:
        told = layout not in QUESTIONS or layout.name != "aime" or name or "aime" in PurePath(where).name.casefold()
        if name in ("", layout.name) and layout.columns <= found and told:
            return layout
    wanted = f"not those of the layout {name}" if name else f"of no known data set; known are {', '.join(NAMES)}"
    raise UserError(f"{where}: its columns {sorted(map(str, found))[:12]} are {wanted}; see env.own.layout")


def question_reader(order: Order, columns: Row, where: str, *, asked: str) -> Reader:
    """A reader for rows of questions, each with a source (`source_of`); `asked` is the path or data set that the user
    named. For questions that ask for a program, tests beyond the order's limits are left out.
    """
    layout = question_layout_of(order.layout or "", columns, where=where)

    def read(row: Row) -> RowRead:
        found = layout.read(row)
        source = found.source or source_of(layout.name, row, file=where, asked=asked, named=order.layout is not None)
        return _with_fewer_tests(replace(found, source=source), order)

    return read


def _with_fewer_tests(found: FoundQuestion, order: Order) -> RowRead:
    """The question with the first tests that are small enough."""
    if found.problem is None:
        return RowRead(found=found)
    small = with_small_tests(found.problem, order)
    return replace(small, found=small.found and replace(found, problem=small.found))
