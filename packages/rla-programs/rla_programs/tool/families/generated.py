"""A family of generated questions: texts with gaps, values drawn for the gaps, and the answer computed here.

    item      (levels, seed, index) -> the gaps' values, from `Random(derive(...))` and nothing else
    question  "Compute {0}^{1} mod {2}."          program  "print(pow({0},{1},{2}))"

A program prints the answer and a line end, by construction: a function of ours computes the answer from the same values
(tests run every program). A program that somebody else wrote is matched against the same text with gaps. If it matches,
its output is computed, and nothing is executed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from rla.seeds import derive

NUMBER = "[1-9][0-9]{0,7}|0"  # a Python number has no leading zero; longer ones are not computed
WORD = "[a-z]{1,64}"
GAP = re.compile(r"\{([0-9])\}")
LONGEST_PROGRAM = 200  # characters of a program that is matched
TRIES = 64  # attempts to draw a slip that changes the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A call: the program, and its output without the line end."""

    program: str
    printed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A question, its answer, and the calls of a teacher; the last one prints the answer."""

    question: str
    answer: str
    rounds: tuple[Round, ...]


class QuestionFamily(Protocol):
    """`tops`: the highest level of each attribute. `about`: a description of each attribute."""

    @property
    def name(self) -> str: ...

    @property
    def tops(self) -> Mapping[str, int]: ...

    @property
    def about(self) -> Mapping[str, str]: ...

    def item(self, levels: Mapping[str, int], seed: int, index: int) -> Made: ...

    def slipped(self, levels: Mapping[str, int], seed: int, index: int, rng: random.Random) -> Made | None:
        """The item with one character of its values copied wrongly and so another answer; None if there is no such
        slip.
        """
        ...

    def printed(self, program: str) -> str | None:
        """The output of `program`, without running it; None if it does not match the family, or takes long."""
        ...


@dataclass(frozen=True, kw_only=True)
class Gapped:
    """A `QuestionFamily` of texts with gaps.

    `gaps`: a pattern for the content of each gap. `draw`: values at some levels. `results`: the outputs of `programs`,
    in order; None if the values have no answer, or none that should be computed here. A program may have further gaps,
    for the results of earlier programs.
    """

    name: str
    tops: Mapping[str, int]
    about: Mapping[str, str]
    asked: str
    programs: tuple[str, ...]
    gaps: tuple[str, ...]
    draw: Callable[[Mapping[str, int], random.Random], Sequence[str]]
    results: Callable[[Sequence[str]], Sequence[str] | None]
    steady: frozenset[int] = field(default_factory=frozenset)  # gaps that are never copied wrongly

    def item(self, levels: Mapping[str, int], seed: int, index: int) -> Made:
        values = self._values(levels, seed, index)
        made = self._made(values)
        assert made is not None, f"{self.name} draws {values}, which have no answer"
        return made

    def slipped(self, levels: Mapping[str, int], seed: int, index: int, rng: random.Random) -> Made | None:
        values = self._values(levels, seed, index)
        right = self._made(values)
        places = [place for place in range(len(values)) if place not in self.steady]
        for _ in range(TRIES):
            place = rng.choice(places)
            other = [*values]
            other[place] = slip_of(other[place], rng)
            if not re.fullmatch(self.gaps[place], other[place]):
                continue
            made = self._made(other)
            if made is not None and right is not None and made.answer != right.answer:
                return made
        return None

    def printed(self, program: str) -> str | None:
        """Only for families with one program, because those with several share their programs with other families."""
        found = self._shape.fullmatch(program) if len(program) <= LONGEST_PROGRAM else None
        if found is None or len(self.programs) > 1:
            return None
        results = self.results([found[f"g{place}"] for place in range(len(self.gaps))])
        return None if results is None else results[-1]

    @cached_property
    def _shape(self) -> re.Pattern[str]:
        """The program, with a group for the first occurrence of each gap; every repetition is linear in time."""
        texts = GAP.split(self.programs[-1])
        seen, shape = set[str](), ""
        for number, text in enumerate(texts):
            if number % 2 == 0:
                shape += re.escape(text)
            elif text in seen:
                shape += f"(?P=g{text})"
            elif int(text) < len(self.gaps):
                seen.add(text)
                shape += f"(?P<g{text}>{self.gaps[int(text)]})"
            else:
                shape += f"(?:{NUMBER})"
        return re.compile(shape)

    def _values(self, levels: Mapping[str, int], seed: int, index: int) -> Sequence[str]:
        return self.draw(levels, random.Random(derive("tool question", self.name, seed, index)))

    def _made(self, values: Sequence[str]) -> Made | None:
        results = self.results(values)
        if results is None:
            return None
        known = [*values, *results]
        rounds = [
            Round(program=text.format(*known), printed=printed)
            for text, printed in zip(self.programs, results, strict=True)
        ]
        return Made(question=self.asked.format(*values), answer=results[-1], rounds=tuple(rounds))


def slip_of(text: str, rng: random.Random) -> str:
    """`text` with one digit or letter replaced by another one, or left out; signs stay."""
    place = rng.choice([number for number, sign in enumerate(text) if sign.isalnum()])
    if rng.random() < 0.25 and len(text) > 1:
        return text[:place] + text[place + 1 :]
    signs = "0123456789" if text[place].isdigit() else "abcdefghijklmnopqrstuvwxyz"
    return text[:place] + rng.choice(signs.replace(text[place], "")) + text[place + 1 :]


def number_of_digits(digits: int, rng: random.Random) -> int:
    """A number with exactly this many digits."""
    return rng.randrange(10 ** (digits - 1), 10**digits)
