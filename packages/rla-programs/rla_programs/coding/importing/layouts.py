"""The data set that a file belongs to, recognised by its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rla.errors import UserError
from rla_programs.coding.data.problems import Problem
from rla_programs.coding.importing.contests import apps, codecontests, published
from rla_programs.coding.importing.livecode import livebench, livecodebench
from rla_programs.coding.importing.mbpp import mbpp


@dataclass(frozen=True, slots=True)
class DataLayout:
    """Columns that no other layout has together, and the function that makes a row a problem or raises
    InvalidProblem.
    """

    columns: frozenset[str]
    read: Callable[[Mapping[str, Any]], Problem]


LAYOUTS = {
    "codecontests": DataLayout(frozenset({"description", "public_tests", "private_tests"}), codecontests),
    "livebench": DataLayout(frozenset({"original_json", "turns"}), livebench),
    "livecodebench": DataLayout(
        frozenset({"question_content", "public_test_cases", "private_test_cases"}), livecodebench
    ),
    "mbpp": DataLayout(frozenset({"test_list", "code"}), mbpp),
    "apps": DataLayout(frozenset({"question", "input_output"}), apps),
    "taco": DataLayout(frozenset({"question", "input_output", "raw_tags"}), apps),
    "published": DataLayout(frozenset({"question", "test_input", "test_output"}), published),
}


def data_layout_of(columns: Iterable[str], *, where: str) -> DataLayout:
    """The layout with these columns. Raises `UserError` that names the file."""
    found = set(columns)
    for layout in LAYOUTS.values():
        if layout.columns <= found:
            return layout
    raise UserError(
        f"{where}: its columns {sorted(found)[:12]} match no known data set; known are {', '.join(LAYOUTS)}"
    )


def layout_named(name: str) -> DataLayout:
    """The layout with this name. Raises `UserError`."""
    if name not in LAYOUTS:
        raise UserError(f"env.own.layout: layout {name!r} is unknown; choose from {', '.join(LAYOUTS)}")
    return LAYOUTS[name]
