"""Metrics of our own, by OSWorld's names where they do what OSWorld's do: of what was found, a score from 0 to 1.

Two are ours alone: `check_cells` for spreadsheets and `check_lines` for texts.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from rla.envs.desktop.tables import TableFlaw, read_sheets

Metric = Callable[..., float]


def exact_match(result: Any, rules: Mapping[str, Any]) -> float:
    return float(result == rules["expected"])


def match_in_list(result: Any, rules: Mapping[str, Any]) -> float:
    return float(result in rules["expected"])


def is_in_list(result: Any, rules: Mapping[str, Any]) -> float:
    return float(rules["expected"] in result)


def check_include_exclude(result: Any, rules: Mapping[str, Any]) -> float:
    """Every text of `include` is in it, and none of `exclude`."""
    text = text_of_result(result)
    included = all(each in text for each in rules.get("include", []))
    return float(included and not any(each in text for each in rules.get("exclude", [])))


def literal_match(result: Any, expected: Any, **options: Any) -> float:
    kind, ignore = options.get("type", "str"), options.get("ignore_case", False)
    if kind == "str":
        return float(str(result).lower() == str(expected).lower() if ignore else result == expected)
    if kind == "list":
        if type(result) is not list or type(expected) is not list or len(result) != len(expected):
            return 0.0
        return float(
            [str(x).lower() for x in result] == [str(x).lower() for x in expected] if ignore else result == expected
        )
    raise KeyError(f"literal_match of {kind!r}")


def compare_text_file(result: Any, expected: Any, **options: Any) -> float:
    """`ignore_blanks`: white space is one space; `ignore_case`."""
    texts = [text_of_result(result), text_of_result(expected)]
    if options.get("ignore_blanks"):
        texts = [re.sub(r"\s+", " ", re.sub(r"[\t\n]", " ", text).strip()) for text in texts]
    if options.get("ignore_case"):
        texts = [text.lower() for text in texts]
    return float(texts[0] == texts[1])


def compare_csv(result: Any, expected: Any, **options: Any) -> float:
    """`expected` may be several files, of which one has to match. `strict`: lines as they are; `ignore_case`."""
    alternatives = expected if isinstance(expected, list) else [expected]
    return float(any(csv_lines(result, options) == csv_lines(each, options) for each in alternatives))


def csv_lines(data: Any, options: Mapping[str, Any]) -> list[Any]:
    text = text_of_result(data).lower() if options.get("ignore_case") else text_of_result(data)
    return text.splitlines() if options.get("strict", True) else list(csv.reader(io.StringIO(text)))


def check_json(result: Any, rules: Mapping[str, Any]) -> float:
    """`expect` and `unexpect`: {"key": [...], "method": "eq" or "ne", "ref": ...}, for a JSON file."""
    found = json.loads(text_of_result(result))
    wanted = [(rule, True) for rule in rules.get("expect", [])] + [(rule, False) for rule in rules.get("unexpect", [])]
    return float(all(holds(found, rule) is expected for rule, expected in wanted))


def holds(found: Any, rule: Mapping[str, Any]) -> bool:
    for key in rule["key"]:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    if rule["method"] not in ("eq", "ne"):
        raise KeyError(f"check_json by {rule['method']!r}")
    return bool((found == rule["ref"]) is (rule["method"] == "eq"))


def check_lines(result: Any, rules: Mapping[str, Any]) -> float:
    """The lines of a text, white space at their ends and empty ones at the end of the text apart, are `lines`; with
    `share` so large a part of them as stands at its place.
    """
    found = [line.rstrip() for line in text_of_result(result).rstrip().splitlines()]
    wanted = [str(line).rstrip() for line in rules["lines"]]
    if not rules.get("share"):
        return float(found == wanted)
    longest = max(len(found), len(wanted), 1)
    return sum(ours == theirs for ours, theirs in zip(found, wanted, strict=False)) / longest


def check_cells(result: Any, rules: Mapping[str, Any]) -> float:
    """Cells of a spreadsheet have these texts (`cells`: {"B2": "5"}; an empty text: nothing is there), on the sheet
    `sheet`, or the first; `sheets`: all their names in order.
    """
    sheets = read_sheets(result)
    if "sheets" in rules and list(sheets) != rules["sheets"]:
        return 0.0
    name = rules.get("sheet", next(iter(sheets), ""))
    if name not in sheets:
        return 0.0
    return float(all(sheets[name].get(place, "") == str(text) for place, text in rules.get("cells", {}).items()))


def text_of_result(found: Any) -> str:
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found)


METRICS: Mapping[str, Metric] = {
    metric.__name__: metric
    for metric in (
        exact_match,
        match_in_list,
        is_in_list,
        check_include_exclude,
        literal_match,
        compare_text_file,
        compare_csv,
        check_json,
        check_lines,
        check_cells,
    )
}
OURS = frozenset({"check_lines", "check_cells"})  # that OSWorld does not have


def metric_score(name: str, result: Any, expected: Any, options: Mapping[str, Any], *, has_expected: bool) -> float:
    """The score; 0 where nothing was found, or where what was found cannot be read as what it should be. Raises
    LookupError and TypeError for rules that are none.
    """
    if result is None:
        return 0.0
    given = (result, expected) if has_expected else (result,)
    try:
        return min(1.0, max(0.0, float(METRICS[name](*given, **options))))
    except (TableFlaw, json.JSONDecodeError, csv.Error):
        return 0.0
