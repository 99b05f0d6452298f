"""The metrics of our own tasks: a score from 0 to 1.

`exact_match` and `check_include_exclude` do the same as OSWorld's metrics with these names. OSWorld's tasks use the
metrics of its own package (`official.py`).

A missing file scores 0, and so does a file that cannot be parsed, because an agent must not escape a loss by leaving
such a file. Text that is not UTF-8 is read as Latin-1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rla_screens.desktop.tables import TableFlaw, read_sheets

Metric = Callable[..., float]


def exact_match(result: Any, rules: Mapping[str, Any]) -> float:
    return float(result == rules["expected"])


def check_include_exclude(result: Any, rules: Mapping[str, Any]) -> float:
    """Every text of `include` occurs in the result, and none of `exclude`."""
    found = _text_of_file(result) if isinstance(result, bytes) else result
    included = all(each in found for each in rules.get("include", []))
    return float(included and not any(each in found for each in rules.get("exclude", [])))


def check_lines(result: Any, rules: Mapping[str, Any]) -> float:
    """The lines of a text equal `lines`, ignoring trailing white space and trailing empty lines. With `share`: the
    fraction of lines in their places.
    """
    found = [line.rstrip() for line in _text_of_file(result).rstrip().splitlines()]
    wanted = [str(line).rstrip() for line in rules["lines"]]
    if not rules.get("share"):
        return float(found == wanted)
    longest = max(len(found), len(wanted), 1)
    return sum(ours == theirs for ours, theirs in zip(found, wanted, strict=False)) / longest


def check_cells(result: Any, rules: Mapping[str, Any]) -> float:
    """Cells of a spreadsheet have these texts (`cells`: {"B2": "5"}; an empty text: the cell is empty), on the sheet
    `sheet`, or the first one. `sheets`: the names of all sheets in order.
    """
    sheets = read_sheets(result)
    if "sheets" in rules and list(sheets) != rules["sheets"]:
        return 0.0
    name = rules.get("sheet", next(iter(sheets), ""))
    if name not in sheets:
        return 0.0
    return float(all(sheets[name].get(place, "") == str(text) for place, text in rules.get("cells", {}).items()))


def _text_of_file(found: Any) -> str:
    """The text of a file with unified line ends, as Python reads files; other values as `str` writes them."""
    if not isinstance(found, bytes):
        return str(found)
    try:
        text = found.decode()
    except UnicodeDecodeError:
        text = found.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


METRICS: Mapping[str, Metric] = {
    metric.__name__: metric for metric in (exact_match, check_include_exclude, check_lines, check_cells)
}
OURS = frozenset({"check_lines", "check_cells"})  # that OSWorld does not have


def metric_score(name: str, result: Any, expected: Any, options: Mapping[str, Any], *, has_expected: bool) -> float:
    """0 if nothing was found or parsed. Raises LookupError, TypeError and AttributeError for malformed rules."""
    if result is None:
        return 0.0
    given = (result, expected) if has_expected else (result,)
    try:
        return min(1.0, max(0.0, float(METRICS[name](*given, **options))))
    except TableFlaw:
        return 0.0
