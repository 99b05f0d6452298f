"""Metrics of our own, by OSWorld's names where they do what OSWorld's do: of what was found, a score from 0 to 1.

Two are ours alone: `check_cells` for spreadsheets and `check_lines` for texts. On purpose otherwise than OSWorld's:

- nothing found scores 0, whatever is expected;
- a file that cannot be read as what it should be scores 0, where OSWorld's metrics fail and there is no score: an agent
  could escape a loss by leaving such a file;
- a file that is no UTF-8 is read as Latin-1 by all of them, as by OSWorld's `compare_csv`;
- files are compared by what is in them also where OSWorld's compare their paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from rla.envs.desktop.json_rules import NoDocument, check_json
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
    found = text_of_file(result) if isinstance(result, bytes) else result
    included = all(each in found for each in rules.get("include", []))
    return float(included and not any(each in found for each in rules.get("exclude", [])))


def literal_match(result: Any, expected: Any, **options: Any) -> float:
    """Both written as texts; of `type` list each of both lists is. `ignore_case`."""
    kind = options.get("type", "str")
    if kind == "str":
        return float(literal(result, options) == literal(expected, options))
    if kind == "list":
        if not isinstance(result, list | tuple) or not isinstance(expected, list | tuple):
            return 0.0
        return float([literal(each, options) for each in result] == [literal(each, options) for each in expected])
    raise KeyError(f"literal_match of {kind!r}")


def literal(value: Any, options: Mapping[str, Any]) -> str:
    text = text_of_file(value)
    return text.lower() if options.get("ignore_case", False) else text


def compare_text_file(result: Any, expected: Any, **options: Any) -> float:
    """However lines end. `ignore_blanks`: white space is one space; `ignore_case`."""
    texts = [text_of_file(result), text_of_file(expected)]
    if options.get("ignore_blanks"):
        texts = [re.sub(r"\s+", " ", re.sub(r"[\t\n]", " ", text).strip()) for text in texts]
    if options.get("ignore_case"):
        texts = [text.lower() for text in texts]
    return float(texts[0] == texts[1])


def compare_csv(result: Any, expected: Any, **options: Any) -> float:
    """Line by line, as texts. `expected` may be several files, of which one has to match; one that was not found does
    not. `strict` (true where it is not given): with the white space at the ends of lines; `ignore_case`.
    """
    alternatives = expected if isinstance(expected, list) else [expected]
    found = csv_lines(result, options)
    return float(any(found == csv_lines(each, options) for each in alternatives if each is not None))


def csv_lines(data: Any, options: Mapping[str, Any]) -> list[str]:
    lines = text_of_file(data).splitlines()
    if not options.get("strict", True):
        lines = [line.strip() for line in lines]
    return [line.lower() for line in lines] if options.get("ignore_case", False) else lines


def check_lines(result: Any, rules: Mapping[str, Any]) -> float:
    """The lines of a text, white space at their ends and empty ones at the end of the text apart, are `lines`; with
    `share` so large a part of them as stands at its place.
    """
    found = [line.rstrip() for line in text_of_file(result).rstrip().splitlines()]
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


def text_of_file(found: Any) -> str:
    """With one kind of line ends, as Python reads files; what is no file is written as a text."""
    if not isinstance(found, bytes):
        return str(found)
    try:
        text = found.decode()
    except UnicodeDecodeError:
        text = found.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


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
    except (TableFlaw, NoDocument):
        return 0.0
