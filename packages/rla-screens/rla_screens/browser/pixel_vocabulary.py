"""Texts that a small new model may have to read and write in the mode `pixels`: instructions and short words."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rla.store.records import Task
from rla_screens.browser.params import BrowserParams
from rla_screens.browser.pixel_commands import ALWAYS, TYPING_KEYS, page_grid
from rla_screens.screens.short import grid_clicks

AS_OFTEN = 24  # a piece that occurs this often becomes a token
TOLD = 2  # tasks that a word of an instruction has to be in
WORDS = ("screen", "> click", "click", " click", "type", 'type "', "Nothing happens.", "\n", "judge:", "no action")


def pixel_texts(tasks: Iterable[Task], own: BrowserParams, *, verdicts: Sequence[str]) -> Iterator[str]:
    """Signs, short words, all clicks on the grid, verdicts, and the instructions. A word that only one instruction has,
    such as a random name, stays spelled in letters.
    """
    yield from string.printable
    yield from [*WORDS, *TYPING_KEYS, *ALWAYS, *verdicts] * AS_OFTEN
    yield from grid_clicks(page_grid(own))
    counts = Counter(word for task in tasks for word in dict.fromkeys(task.instruction.split(" ")))
    for word, count in counts.items():
        if count >= TOLD:
            yield from [f"{word} {word}"] * AS_OFTEN
