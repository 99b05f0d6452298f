"""The families of reasoning-gym that can be played here, each with its levels.

A family makes item `index` from `Random(seed + index)`, its levels and its values, and from nothing else. Families that
break this rule are refused by name. So are families whose verifier runs text or accepts wrong answers, whose own
answers are wrong, or which take minutes.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import json
import random
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from rla.errors import UserError
from rla.plugins import need_package

UNSTABLE = "its items differ from one process to the next"
RUNS = "its verifier runs the answer as code"
REFUSED = {
    "boxnet": "it makes no question that could be verified",
    "codeio": "it runs code of a data set",
    "coin_flip": "its verifier accepts wrong answers, such as 0 for 0.5",
    "composite": "it is made of other families; name one of those",
    "decimal_arithmetic": "it rounds between the steps, so that one answer of twenty is wrong",
    "game_of_life_halting": "its verifier accepts every answer",
    "intermediate_integration": RUNS,
    "isomorphic_strings": UNSTABLE,
    "knight_swap": "an item may take minutes",
    "list_functions": UNSTABLE,
    "number_filtering": "it rewrites numbers of its list, and refuses them as the question has them",
    "polynomial_equations": "its answers lack real roots of some equations",
    "polynomial_multiplication": UNSTABLE,
    "quantum_lock": "its answers leave the light as it is where the question says that every press toggles it",
    "ransom_note": UNSTABLE,
    "simple_integration": RUNS,
    "sokoban": "an item may take minutes",
    "syllogism": "it takes conclusions that do not follow for valid, one of eight",
    "word_ladder": UNSTABLE,
}
# Items of these families have no reference answer, so there are no demonstrations, and nothing proves that a changed
# item can be solved.
WITHOUT_ANSWER = frozenset({"graph_color", "propositional_logic", "rubiks_cube", "rush_hour"})
WITHOUT_LEVELS = frozenset({"acre", "gsm_symbolic"})
SLOW = frozenset(
    {"acre", "advanced_geometry", "arc_1d", "arc_agi", "bf", "countdown", "futoshiki", "game_of_life", "jugs"}
    | {"kakurasu", "mini_sudoku", "n_queens", "number_sequence", "puzzle24"}
    | {"rearc", "sudoku", "zebra_puzzles"}
)
# The highest level of an attribute at which an item takes seconds at most, at any level of the others.
HIGHEST = {
    ("arc_1d", "size"): 2,
    ("bf", "difficulty"): 1,
    ("countdown", "numbers"): 1,
    ("countdown", "value"): 0,
    ("futoshiki", "board_size"): 2,
    ("game_of_life", "grid_size_x"): 2,
    ("game_of_life", "grid_size_y"): 2,
    ("jugs", "difficulty"): 1,
    ("jugs", "num_jugs"): 2,
    ("kakurasu", "cols"): 2,
    ("kakurasu", "rows"): 2,
    ("n_queens", "n"): 3,
    ("number_sequence", "max_complexity"): 1,
    ("puzzle24", "value"): 1,
    ("zebra_puzzles", "num_characteristics"): 2,
    ("zebra_puzzles", "num_people"): 3,
}
# Families that draw `size` items before they make the first. For all others the size has no effect.
SIZES = {"acre": 1000, "gsm_symbolic": 20_000}
ITEMS = 1 << 30
ID = "env.own.id"


class NoItem(Exception):
    """A family makes no item of these levels and values; the message is the reason."""


def check_family(name: str, *, key: str = ID) -> None:
    """Raises UserError for a refused family. Only the package itself knows whether a family exists.

    `key`: the parameter that names the family.
    """
    if not name:
        raise UserError(f"{key} names no family; give one, such as --env reasoning-gym:chain_sum")
    if name in REFUSED:
        raise UserError(f"{key} is {name}, which rla cannot play: {REFUSED[name]}; choose another family")


@cache
def reasoning_library() -> Any:
    """The package's registry. Raises UserError if it is not installed."""
    need_package("reasoning_gym", install="rla-bridges[reasoning-gym]", why="env.name is reasoning-gym")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return importlib.import_module("reasoning_gym.factory")


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Suppress output and restore the global random state: families print, and some seed the process's generator."""
    import numpy as np

    own, shared = random.getstate(), np.random.get_state()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        random.setstate(own)
        np.random.set_state(shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`tops`: the highest level of each attribute. `about`: the package's description of each attribute."""

    name: str
    tops: Mapping[str, int]
    about: Mapping[str, str]

    def fields(self, levels: Mapping[str, int], values: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters for the package: those of the levels, overridden by `values`. An attribute at a level takes
        the values of that level alone and not of those below, so that harder is harder. Raises NoItem.
        """
        coaching = importlib.import_module("reasoning_gym.coaching.base_curriculum")
        found: dict[str, Any] = {}
        if self.tops:
            with makes_no_item():
                curriculum = reasoning_library().create_curriculum(self.name)
                for attribute, level in levels.items():
                    curriculum.set_attr_level(attribute, level)
                exactly = coaching.DefaultCurriculumContext(mode=coaching.RangeAttributeMode.UPPER_BOUND)
                for attribute in curriculum.attributes.values():
                    value = exactly.get_attr_value(curriculum, attribute)
                    if hasattr(attribute, "field_name"):
                        found[attribute.field_name] = value
                    else:
                        ends = value if isinstance(value, list | tuple) else [value]
                        found |= {attribute.lower_field_name: min(ends), attribute.upper_field_name: max(ends)}
        plain: dict[str, Any] = json.loads(json.dumps(found | dict(values)))
        return plain

    def items(self, levels: Mapping[str, int], values: Mapping[str, Any], *, seed: int) -> Any:
        """The package's data set for these levels and values. Raises NoItem."""
        return _data_set(self.name, json.dumps(self.fields(levels, values), sort_keys=True), seed)

    def at(self, level: int) -> dict[str, int]:
        """Every attribute at `level`, or at its highest level if that is lower."""
        return {name: min(level, top) for name, top in self.tops.items()}


@contextlib.contextmanager
def makes_no_item() -> Iterator[None]:
    """Turn exceptions of the package into NoItem."""
    try:
        with undisturbed():
            yield
    except Exception as error:  # a family may report with any exception that it cannot make an item
        raise NoItem(f"{type(error).__name__}: {str(error)[:200]}") from error


@cache
def opened_family(name: str, *, key: str = ID) -> Family:
    """Raises UserError if the package does not know the name, or is not installed."""
    check_family(name, key=key)
    library = reasoning_library()
    if name not in library.DATASETS:
        near = difflib.get_close_matches(name, library.DATASETS.keys() - REFUSED.keys(), n=1)
        hint = f"did you mean {near[0]}?" if near else "docs/guide/reasoning-gym.md says which there are"
        raise UserError(f"{key} is {name!r}, which is not a family of reasoning-gym; {hint}")
    made = library.create_curriculum(name).attributes if library.has_curriculum(name) else {}
    return Family(
        name=name,
        tops={key: min(len(one.levels) - 1, HIGHEST.get((name, key), len(one.levels))) for key, one in made.items()},
        about={key: str(one.description or key) for key, one in made.items()},
    )


@lru_cache(maxsize=64)
def _data_set(name: str, fields: str, seed: int) -> Any:
    with makes_no_item():
        return reasoning_library().create_dataset(
            name, **json.loads(fields), seed=seed, size=SIZES.get(name, 2 * ITEMS)
        )
