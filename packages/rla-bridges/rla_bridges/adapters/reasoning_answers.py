"""Which answers a family's verifier may be given. Some verifiers run the answer as code, or accept too much.

evaluated     an inexact answer goes through `eval`: only literals are allowed
calculated    a calculation goes through SymPy, which runs it: only digits, + - * / and brackets are allowed
not a number  every comparison with "nan" succeeds
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

EVALUATED = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
CALCULATED = frozenset({"countdown", "puzzle24"})
NOT_A_NUMBER = frozenset({"complex_arithmetic", "number_sorting"})
REPEATED = frozenset({"rubiks_cube"})
MOST_TURNS = 400  # of a cube; each takes a sixth of a millisecond
LONGEST = 10_000  # characters of an answer
LONGEST_LITERAL = 2000
LONGEST_CALCULATION = 200
CALCULATION = re.compile(r"[0-9+\-*/() ]+")
NUMBER = re.compile(r"[0-9]+")


def may_be_verified(family: str, answer: str, entry: Mapping[str, Any]) -> bool:
    """Whether the family's verifier may be given `answer`; if not, the answer scores 0."""
    if not answer or len(answer) > LONGEST:
        return False
    if family in EVALUATED:
        exact = {str(entry["answer"]).strip(), *entry["metadata"].get("valid_answers", ())}
        return answer in exact or is_literal(answer)
    if family in CALCULATED:
        return is_calculation(answer, entry["metadata"]["numbers"])
    if family in REPEATED:
        return len(answer.split()) + sum(int(number[:9]) for number in NUMBER.findall(answer)) <= MOST_TURNS
    return family not in NOT_A_NUMBER or "nan" not in answer.lower()


def is_literal(text: str) -> bool:
    """Whether `text` is a Python literal. It is parsed and not run."""
    if len(text) > LONGEST_LITERAL:
        return False
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def is_calculation(text: str, numbers: list[int]) -> bool:
    """Whether `text` calculates with each of `numbers` exactly once, and does nothing else."""
    if len(text) > LONGEST_CALCULATION or "**" in text or not CALCULATION.fullmatch(text):
        return False
    used = NUMBER.findall(text)
    return all(len(number) <= 9 for number in used) and sorted(map(int, used)) == sorted(numbers)
