"""Texts that a small new model may have to read and write: pages, commands, and the judge's verdicts."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from rla.envs.protocols import Demonstration
from rla.store.records import Task

AS_OFTEN = 24  # a piece that occurs this often becomes a token
READ = 400  # tasks that are played
WORDS = (
    *("click", "hover", "type", "select", "press Enter", "drag to", "done", " in", " value", " options", " chosen"),
    *(
        " button",
        " link",
        " textbox",
        " textarea",
        " checkbox",
        " radio",
        " select",
        " tab",
        " image",
        " item",
        " slider",
    ),
    *(
        " checked",
        " focused",
        " disabled",
        " open",
        " on",
        "text",
        "letter",
        " menuitem",
        " option",
        "Nothing happens.",
    ),
    *('"', ' "', '" "', "\n", " size", " circle", " rect", " polygon", "the page is empty"),
)


def page_texts(
    tasks: Iterable[Task], played: Callable[[Task, int], Demonstration], *, verdicts: Sequence[str]
) -> Iterator[str]:
    """Signs, words of the mode `text`, verdicts, and demonstrations of some tasks."""
    yield from string.printable
    yield from [*WORDS, *verdicts, "judge: no action"] * AS_OFTEN
    for number, task in enumerate(islice(tasks, READ)):
        shown = played(task, number)
        yield from (*shown.observations, *shown.actions, shown.final_observation)
