"""The families of our own by name, and what programs of any of them print."""

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
DEFAULT = ("arithmetic", "powers", "counting", "search", "gcd", "lcm", "digits")  # of which one call is enough


def question_family(name: str) -> QuestionFamily:
    """Raises UserError for a name that there is not."""
    found = OWN.get(name)
    if found is None:
        near = difflib.get_close_matches(name, OWN, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(OWN)}"
        raise UserError(f"tasks.kinds names {name!r}, which is no family of the environment tool; {hint}")
    return found


def drawn_levels(family: QuestionFamily, levels: Sequence[int], rng: random.Random) -> dict[str, int]:
    """Every attribute at one of `levels`, by lot, or at its highest where that is less."""
    return {name: min(rng.choice(levels), top) for name, top in family.tops.items()}


def known_output(program: str) -> str | None:
    """What a program of the shape of one of our families prints; nothing is run. None: nobody here knows."""
    return next((text for family in OWN.values() if (text := family.printed(program)) is not None), None)
