"""Which data set a file is of, told by its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rla.envs.coding.importing.contests import apps, codecontests, published
from rla.envs.coding.importing.livecode import livebench, livecodebench
from rla.envs.coding.importing.mbpp import mbpp
from rla.envs.coding.problems import Problem
from rla.errors import UserError


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns that no other layout has together, and how a row becomes a problem (or raises `InvalidProblem`)."""

    columns: frozenset[str]
    read: Callable[[Mapping[str, Any]], Problem]


LAYOUTS = {
    "codecontests": Layout(frozenset({"description", "public_tests", "private_tests"}), codecontests),
    "livebench": Layout(frozenset({"original_json", "turns"}), livebench),
    "livecodebench": Layout(frozenset({"question_content", "public_test_cases", "private_test_cases"}), livecodebench),
    "mbpp": Layout(frozenset({"test_list", "code"}), mbpp),
    "apps": Layout(frozenset({"question", "input_output"}), apps),
    "taco": Layout(frozenset({"question", "input_output", "raw_tags"}), apps),
    "published": Layout(frozenset({"question", "test_input", "test_output"}), published),
}


def layout_of(columns: Iterable[str], *, where: str) -> Layout:
    """The layout with these columns. Raises `UserError` that names the file."""
    found = set(columns)
    for layout in LAYOUTS.values():
        if layout.columns <= found:
            return layout
    raise UserError(
        f"{where}: its columns {sorted(found)[:12]} are of no known data set; known are {', '.join(LAYOUTS)}"
    )


def layout_named(name: str) -> Layout:
    """The layout of this name. Raises `UserError`."""
    if name not in LAYOUTS:
        raise UserError(f"env.coding.layout: layout {name!r} is unknown; choose from {', '.join(LAYOUTS)}")
    return LAYOUTS[name]
