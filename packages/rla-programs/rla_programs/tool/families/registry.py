"""Our own families by name, and the outputs of programs of any of them."""

from __future__ import annotations

import difflib
import random
from collections.abc import Mapping, Sequence

from rla.errors import UserError
from rla_programs.tool.families.generated import QuestionFamily
from rla_programs.tool.families.numbers import ARITHMETIC, DIGITS, GCD, LCM, POWERS, SEARCH, STEPS
from rla_programs.tool.families.texts import COUNTING

OWN: Mapping[str, QuestionFamily] = {
    family.name: family for family in (ARITHMETIC, POWERS, COUNTING, SEARCH, GCD, LCM, DIGITS, STEPS)
}
DEFAULT = ("arithmetic", "powers", "counting", "search", "gcd", "lcm", "digits")  # families that need only one call


def question_family(name: str) -> QuestionFamily:
    """Raises UserError for an unknown name."""
    found = OWN.get(name)
    if found is None:
        near = difflib.get_close_matches(name, OWN, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(OWN)}"
        raise UserError(f"tasks.kinds names {name!r}, which is not a family of the environment tool; {hint}")
    return found


def drawn_levels(family: QuestionFamily, levels: Sequence[int], rng: random.Random) -> dict[str, int]:
    """Every attribute at a random one of `levels`, or at its highest level if that is lower."""
    return {name: min(rng.choice(levels), top) for name, top in family.tops.items()}


def known_output(program: str) -> str | None:
    """The output of a program that matches one of our families; nothing is run. None if it is unknown."""
    return next((text for family in OWN.values() if (text := family.printed(program)) is not None), None)
