"""Questions of families for tests, and both formats."""

from __future__ import annotations

from rla_programs.tool.formats import make_format
from rla_programs.tool.tasks import builtin_questions

from rla.store.records import Task

SHORT, HERMES = make_format("short"), make_format("hermes")


def drawn(
    *kinds: str, count: int = 1, held_out: bool = False, level: int = 0, spread: int = 0, seed: int = 0
) -> list[Task]:
    return builtin_questions(
        kinds=kinds, level=level, spread=spread, count=count, held_out=held_out, seed=seed, split="train"
    )
