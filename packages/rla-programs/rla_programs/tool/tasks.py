"""Rows of the task pool from generated questions, each kind in its turn."""

from __future__ import annotations

from collections.abc import Sequence

from rla.errors import UserError
from rla.store.records import Task
from rla_programs.tool.families.registry import DEFAULT
from rla_programs.tool.generating import drawn_of_kind
from rla_programs.tool.questions import task_of_question


def builtin_questions(
    *,
    kinds: Sequence[str] = DEFAULT,
    level: int = 0,
    spread: int = 0,
    count: int,
    held_out: bool,
    seed: int,
    split: str,
) -> list[Task]:
    """`count` different questions (fewer if there are no more) as tasks of `split`.

    The kinds alternate in their order; a kind without further questions is skipped. Held-out questions have texts of
    their own, so they are not in training for any seed or level. Raises UserError for unknown kinds, and for a kind
    given twice.
    """
    names = tuple(kinds) or DEFAULT
    if len(set(names)) < len(names):
        raise UserError("tasks.kinds names a kind twice; name each once")
    drawn = {
        kind: drawn_of_kind(kind, level=level, spread=spread, count=count, held_out=held_out, seed=seed)
        for kind in names
    }
    found: list[Task] = []
    while drawn:
        for kind in list(drawn):
            if len(found) == count:
                return found
            asked = next(drawn[kind], None)
            if asked is None:
                del drawn[kind]
            else:
                found.append(task_of_question(asked, split=split))
    return found
