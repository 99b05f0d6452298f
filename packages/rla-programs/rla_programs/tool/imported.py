"""Questions of public data sets as tasks: from a Parquet, JSON or JSON lines file, a folder's split, or the Hub.

Rows are read in a separate process with a memory limit (`rla_programs.coding.importing.apart`). A row that is not a
question is left out and counted by reason; if no question is found, that is a UserError. Duplicate questions are
imported once.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from rla.envs.chat_prompts import single_spaced
from rla.errors import UserError
from rla.store.records import Task
from rla_programs.coding.data.problems import problem_payload
from rla_programs.coding.importing.apart import Order, read_apart
from rla_programs.coding.importing.hub import PREFIX, fetched
from rla_programs.coding.importing.importer import MAX_TEST_CHARS, MAX_TESTS
from rla_programs.coding.importing.rows import files_of
from rla_programs.tool.answer_reading import choice_in, options_in, plain_words
from rla_programs.tool.answers import alternatives
from rla_programs.tool.importing.found import FoundQuestion
from rla_programs.tool.importing.question_layouts import check_question_layout, question_reader
from rla_programs.tool.mathematics.comparing import is_readable
from rla_programs.tool.questions import Check, Question, task_of_question
from rla_programs.tool.results import harmless

AGAIN = "the same question again"


@dataclass(slots=True)
class ImportedQuestions:
    """The questions in order, the invalid rows by reason, and the number of tests that were left out."""

    questions: list[Question] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    tests_left_out: int = 0
    as_text: list[str] = field(default_factory=list)  # answers that cannot be compared by value

    def summary(self) -> str:
        """One line for the user: rows that were read, by source, and rows that were not."""
        sources = Counter(question.source for question in self.questions)
        named = ", ".join(f"{count} {source}" for source, count in sources.most_common(8))
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.skipped.most_common())
        left_out = f"; {self.tests_left_out} tests left out" if self.tests_left_out else ""
        as_text = ""
        if self.as_text:
            as_text = f"; {len(self.as_text)} answers can only be compared as text, such as {self.as_text[0][:80]!r}"
        return (
            f"{len(self.questions)} questions ({named or 'none'}), {self.skipped.total()} rows skipped "
            f"({reasons or 'none'}){left_out}{as_text}"
        )


def import_questions(
    path: str | Path,
    *,
    split: str,
    layout: str = "",
    limit: int | None = None,
    max_tests: int = MAX_TESTS,
    max_test_chars: int = MAX_TEST_CHARS,
    tell: Callable[[str], None] | None = None,
) -> list[Task]:
    """The questions of a file, of a folder's `split`, or of `hub:owner/name[@revision][:folder or file]` as tasks.

    `tell` gets a line about imported and skipped rows. Raises UserError if a file cannot be read, if its layout is
    unknown, or if there is no question at all.
    """
    found = _found_questions(
        path, split=split, layout=layout, limit=limit, max_tests=max_tests, max_test_chars=max_test_chars
    )
    if tell is not None:
        tell(f"{path}: {found.summary()}")
    return [task_of_question(question, split=split) for question in found.questions]


def _found_questions(
    path: str | Path,
    *,
    split: str,
    layout: str,
    limit: int | None,
    max_tests: int,
    max_test_chars: int,
) -> ImportedQuestions:
    """`import_questions` before questions become tasks."""
    check_question_layout(layout)
    where = str(path)
    files = fetched(where, split) if where.startswith(PREFIX) else files_of(Path(path), split)
    order = Order(
        files=tuple(map(str, files)),
        opener=partial(question_reader, asked=where),
        layout=layout or None,
        max_tests=max_tests,
        max_test_chars=max_test_chars,
    )
    found, seen = ImportedQuestions(), set[str]()
    with contextlib.closing(read_apart(order)) as rows:
        for read in rows:
            if limit is not None and len(found.questions) >= limit:
                break
            if read.found is None:
                found.skipped[read.reason] += 1
                continue
            likeness = single_spaced(read.found.text)
            if likeness in seen:
                found.skipped[AGAIN] += 1
                continue
            seen.add(likeness)
            question = _asked_question(read.found)
            found.questions.append(question)
            if question.check == "math" and not all(map(is_readable, alternatives(question.answer))):
                found.as_text.append(question.answer)
            found.tests_left_out += read.tests_left_out
    if not found.questions:
        raise UserError(f"{where}: no question in it: {found.summary()}")
    return found


def _asked_question(found: FoundQuestion) -> Question:
    """The question of a task. An answer that names an option of the question, and not only its text, is a choice."""
    check, answer, options = found.check, found.answer, options_in(found.text)
    letter = choice_in(answer, options) if check == "math" else None
    if letter in options and plain_words(answer).casefold() != plain_words(options[letter]).casefold():
        check, answer = "choice", letter
    return Question(
        text=harmless(found.text),  # some tokenizers turn tags that are not marked as special into control tokens
        check=cast(Check, check),
        answer=answer,
        source=found.source,
        problem=None if found.problem is None else problem_payload(found.problem),
        domain=found.domain,
    )
