"""Texts for the tokenizer of an environment that does not say what its vocabulary is (`Vocabulary`)."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator

from rla.config import Config
from rla.envs.protocols import Env, Judged
from rla.store.records import Task


def plain_texts(env: Env, tasks: Iterable[Task], config: Config) -> Iterator[str]:
    """Every printable sign by itself, the instructions of the tasks, and what the judge may reply."""
    yield from string.printable
    if isinstance(env, Judged):
        yield from env.judge_prompt(config).replies()
        yield "judge: no action"
    for task in tasks:
        yield task.instruction
