"""Families of texts: how often a letter occurs.

In a word of a few letters the count is easily guessed; in the same word written a few hundred times it is not.
"""

from __future__ import annotations

import random
import string
from collections.abc import Mapping, Sequence

from rla_programs.tool.families.generated import NUMBER, WORD, Gapped, number_of_digits

SHORTEST, LONGER = 5, 3  # letters of a word: at level 0, and more per level
FEWEST_DIGITS = 3
LONGEST_TEXT = 10_000_000  # characters that the sandbox can hold


def _word(levels: Mapping[str, int], rng: random.Random) -> Sequence[str]:
    length = SHORTEST + LONGER * levels["length"]
    letter = rng.choice(string.ascii_lowercase)
    letters = [rng.choice(string.ascii_lowercase) for _ in range(length)]
    for place in rng.sample(range(length), rng.randint(1, length // 2)):
        letters[place] = letter
    return [letter, "".join(letters), str(number_of_digits(FEWEST_DIGITS + levels["times"], rng))]


def _counted(values: Sequence[str]) -> Sequence[str] | None:
    letter, word, times = values
    if len(word) * int(times) > LONGEST_TEXT:
        return None
    return [str(word.count(letter) * int(times))]


COUNTING = Gapped(
    name="counting",
    tops={"length": 3, "times": 2},
    about={"length": "letters of the word", "times": "digits of how often the word is written"},
    asked="How often is '{0}' in '{1}'*{2}?",
    programs=("print(('{1}'*{2}).count('{0}'))",),
    gaps=("[a-z]", WORD, NUMBER),
    draw=_word,
    results=_counted,
)
