"""Files of answers that were given elsewhere, and how their rows are matched to tasks.

    columns                          a row belongs to
    task_id, response                the task with that id
    question, response               the task with that instruction
    input, output (gts, score, ...)  the task whose instruction it contains: a validation dump of verl, whose input is
                                     the complete prompt
    messages                         the task of task_id or question, else the one whose instruction is in the user's
                                     part before the first reply (`rla_programs.answering.transcripts`)

`response` is a string or a list of strings, and takes precedence over `messages`. Texts are compared without regard to
white space. If an input contains several instructions, the longest one counts; a row that is still ambiguous belongs to
no task. Files are JSON lines or Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla.envs.chat_prompts import single_spaced
from rla.errors import UserError
from rla.store.reading import column_batches
from rla.store.records import Task
from rla_programs.answering.transcripts import ROLES_READ, Given, NoTranscript, given_messages

LAYOUTS = "response with task_id or question, input with output, or messages"
READ = ("task_id", "question", "response", "input", "output", "messages")
AT_ONCE = 256  # rows of a Parquet file
LONGEST_LINE = 64 << 20  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRow:
    """The fields that identify the row's task, all empty if the row has none of them, and its answers."""

    task_id: str | None
    question: str | None
    prompt: str | None
    responses: tuple[Given, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedAnswers:
    """`groups`: each task that has answers, with each of its answers. `unmatched`: rows that belong to no task."""

    rows: int
    unmatched: int
    unanswered: int
    groups: list[list[tuple[Task, Given]]] = field(repr=False)

    @property
    def tasks(self) -> list[Task]:
        return [group[0][0] for group in self.groups]

    def counts(self) -> dict[str, int]:
        answers = sum(map(len, self.groups))
        return {
            "rows": self.rows,
            "unmatched": self.unmatched,
            "answers": answers,
            "tasks": len(self.groups),
            "unanswered_tasks": self.unanswered,
        }

    def told(self) -> str:
        found = self.counts()
        return (
            f"{found['answers']} answers to {found['tasks']} tasks; {self.unanswered} tasks without an answer, "
            f"{self.unmatched} of {self.rows} rows belong to no task"
        )


def read_answers(file: Path) -> list[AnswerRow]:
    """All rows. Raises UserError for a file that cannot be read, and for a row with an unknown layout."""
    if file.suffix not in (".jsonl", ".parquet"):
        raise UserError(f"{file}: answers are read from .jsonl and .parquet files")
    try:
        rows = _parquet_rows(file) if file.suffix == ".parquet" else _json_rows(file)
        found = [_answer_row(row, where=f"{file}, row {number}") for number, row in enumerate(rows, start=1)]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read: {error}") from None
    if not found:
        raise UserError(f"{file}: no rows")
    return found


def _answer_row(row: Mapping[str, Any], *, where: str) -> AnswerRow:
    """Raises UserError if the row has no answer, or does not identify its task."""
    if row.get("response") is None and row.get("output") is None and row.get("messages") is not None:
        return _transcript_row(row, where=where)
    dump = row.get("response") is None and row.get("output") is not None
    found = row.get("output") if dump else row.get("response")
    responses = [found] if isinstance(found, str) else found
    said = ("input",) if dump else ("task_id", "question")
    names = {name: row[name] for name in said if row.get(name) is not None}
    if not isinstance(responses, list) or not all(isinstance(one, str) for one in responses) or not names:
        raise UserError(f"{where}: a row needs the columns {LAYOUTS}; response is a text or a list of texts")
    _check_names(names, where=where)
    return AnswerRow(
        task_id=names.get("task_id"),
        question=names.get("question"),
        prompt=names.get("input"),
        responses=tuple(responses),
    )


def _transcript_row(row: Mapping[str, Any], *, where: str) -> AnswerRow:
    """Raises UserError for invalid messages."""
    names = {name: row[name] for name in ("task_id", "question") if row.get(name) is not None}
    _check_names(names, where=where)
    try:
        given = given_messages(row["messages"])
    except NoTranscript as fault:
        raise UserError(
            f"{where}: {fault}; messages is a list of objects with a role of {', '.join(ROLES_READ)}, a content and, "
            "for the assistant, tool_calls; give one conversation a row, with its replies"
        ) from None
    if not names and not given.asked:
        raise UserError(f"{where}: messages without a user's question; add one, or the column task_id or question")
    return AnswerRow(
        task_id=names.get("task_id"), question=names.get("question"), prompt=given.asked or None, responses=(given,)
    )


def _check_names(names: Mapping[str, Any], *, where: str) -> None:
    if not all(isinstance(value, str) for value in names.values()):
        raise UserError(f"{where}: {' and '.join(names)} must be a text")


def matched_answers(rows: Sequence[AnswerRow], pool: Sequence[Task]) -> MatchedAnswers:
    """The answers to each task of `pool`, in its order; answers to one task are in the order of the rows."""
    by_id = {task.task_id: task for task in pool}
    texts = _instructions_of(pool)
    held = InputIndex(texts)
    answers: dict[str, list[Given]] = {}
    unmatched = 0
    for row in rows:
        task = by_id.get(row.task_id) if row.task_id is not None else None
        if task is None and row.question is not None:
            task = texts.get(single_spaced(row.question))
        if task is None and row.prompt is not None:
            task = held.of(row.prompt)
        if task is None:
            unmatched += 1
        else:
            answers.setdefault(task.task_id, []).extend(row.responses)
    groups = [[(task, text) for text in answers[task.task_id]] for task in pool if answers.get(task.task_id)]
    return MatchedAnswers(rows=len(rows), unmatched=unmatched, unanswered=len(pool) - len(groups), groups=groups)


class InputIndex:
    """Finds the longest instruction in a text. A dump repeats each input, so results are cached."""

    def __init__(self, texts: Mapping[str, Task]) -> None:
        self._texts = sorted(texts.items(), key=lambda item: -len(item[0]))
        self._found: dict[str, Task | None] = {}

    def of(self, text: str) -> Task | None:
        if text not in self._found:
            plain = single_spaced(text)
            held = [(len(own), task) for own, task in self._texts if own in plain]
            clear = len(held) == 1 or (len(held) > 1 and held[0][0] > held[1][0])
            self._found[text] = held[0][1] if clear else None
        return self._found[text]


def _instructions_of(pool: Sequence[Task]) -> dict[str, Task]:
    """Instruction -> task, without instructions that several tasks share."""
    found: dict[str, list[Task]] = {}
    for task in pool:
        found.setdefault(single_spaced(task.instruction), []).append(task)
    return {text: tasks[0] for text, tasks in found.items() if text and len(tasks) == 1}


def _json_rows(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line) if len(line) <= LONGEST_LINE else None
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise UserError(f"{file}, line {number}: not a JSON object of at most {LONGEST_LINE >> 20} MB")
            yield row


def _parquet_rows(file: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as opened:
            columns = [name for name in READ if name in opened.schema_arrow.names]
            for batch in column_batches(file, opened, columns, rows=AT_ONCE):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise UserError(f"{file}: cannot be read: {error}") from None
