"""`check_json`: what a JSON or YAML file of settings has to say, by OSWorld's rules.

    {"expect": [{"key": ["a", "b"], "method": "eq", "ref": 1}], "unexpect": [...]}

Methods: eq, ne, lt, le, gt, ge, `approx:0.1`, `range.te` (open on the left, closed on the right), str_list_eq and
str_set_eq.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml

COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
LISTED: Mapping[str, Callable[[Any], Any]] = {"str_list_eq": list, "str_set_eq": set}
RANGE = re.compile(r"range\.([te])([te])")
MOST_YAML = 1 << 16  # bytes
NUMBER = (int, float)
# The last three: a value that does not fit its tag (`!!bool x`, `!!int ''`, `!!timestamp x`); PyYAML does not check.
FLAWS = (ValueError, RecursionError, ArithmeticError, yaml.YAMLError, LookupError, AttributeError, TypeError)


class NoDocument(Exception):
    """A file that is no JSON or YAML."""


class _PlainYaml(yaml.SafeLoader):
    """Without aliases: with merges they make a short file as large as anybody likes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("an alias")
        return super().compose_node(parent, index)


def check_json(result: Any, rules: Mapping[str, Any], is_yaml: bool = False) -> float:
    """1 if all rules of `expect` hold and none of `unexpect` does. A key that is missing fails `expect`, and is None to
    `unexpect`. Raises LookupError and TypeError for rules that are none.

    On purpose otherwise than OSWorld's, which gives no score where this gives 0: for a file that cannot be parsed, and
    for values that a method cannot compare (the rule does not hold). An agent could escape a loss by such a file. YAML
    is data: no tags of Python, no aliases, at most 64 KiB. Methods `re` are not had: a pattern of a task may take for
    ever on a text that an agent wrote.
    """
    found = _parsed(result, is_yaml=is_yaml)
    for rule in rules.get("expect", ()):
        has, value = _value_at(found, rule["key"])
        if not has or not holds(value, rule):
            return 0.0
    return float(not any(holds(_value_at(found, rule["key"])[1], rule) for rule in rules.get("unexpect", ())))


def _parsed(result: Any, *, is_yaml: bool) -> Any:
    """Raises NoDocument."""
    try:
        text = result.decode() if isinstance(result, bytes) else str(result)
        if not is_yaml:
            return json.loads(text)
        if len(text) > MOST_YAML:
            raise NoDocument("too long")
        return yaml.load(text, Loader=_PlainYaml)
    except FLAWS as error:
        raise NoDocument(str(error)) from None


def _value_at(found: Any, keys: Any) -> tuple[bool, Any]:
    """Whether it is there, and what; None where it is not."""
    for key in keys:
        try:
            found = found[key]
        except (LookupError, TypeError):
            return False, None
    return True, found


def holds(value: Any, rule: Mapping[str, Any]) -> bool:
    """Raises KeyError for a method that is not had."""
    method, ref = rule["method"], rule["ref"]
    if method in COMPARED:
        return _compared(COMPARED[method], value, ref)
    if method in LISTED:
        kind = LISTED[method]
        return isinstance(value, str) and bool(kind(value.strip("\"'").split(",")) == kind(ref))
    if (margin := approximation(method)) is not None:
        try:
            return bool(abs(float(value) - ref) <= margin)
        except (ValueError, TypeError, ArithmeticError):
            return False
    if ends := RANGE.fullmatch(method):
        least, most = (COMPARED[f"l{end}"] for end in ends.groups())
        return _compared(least, ref[0], value) and _compared(most, value, ref[1])
    raise KeyError(f"check_json by {method!r}")


def _compared(how: Callable[[Any, Any], Any], one: Any, other: Any) -> bool:
    try:
        return bool(how(one, other))
    except TypeError:
        return False


def approximation(method: str) -> float | None:
    """The margin of `approx:MARGIN`."""
    head, _, margin = method.partition(":")
    try:
        return float(margin) if head == "approx" else None
    except ValueError:
        return None


def lacking_of_json(rules: Any) -> str:
    """What of OSWorld's `check_json` these rules ask that this one does not have, or what is wrong with them; empty for
    nothing.
    """
    if not isinstance(rules, dict):
        return "rules that are no JSON object"
    for side in ("expect", "unexpect"):
        listed = rules.get(side, [])
        if not isinstance(listed, list | dict) or (isinstance(listed, dict) and listed):
            return f"{side} that is no list"
        for rule in listed:
            if flaw := flaw_of_rule(rule):
                return flaw
    return ""


def flaw_of_rule(rule: Any) -> str:
    if not isinstance(rule, dict) or not {"key", "method", "ref"} <= set(rule):
        return "a rule without key, method and ref"
    method, ref = rule["method"], rule["ref"]
    if not isinstance(rule["key"], list) or not all(isinstance(key, str | int) for key in rule["key"]):
        return "a key that is no list of names"
    if not isinstance(method, str):
        return "a method that is no text"
    margin = approximation(method)
    if method in LISTED:
        fits = isinstance(ref, list) and all(isinstance(each, str) for each in ref)
    elif margin is not None:
        fits = is_number(ref) and math.isfinite(margin)
    elif RANGE.fullmatch(method):
        fits = isinstance(ref, list) and len(ref) == 2
    elif method in COMPARED:
        fits = True
    else:
        return f"the method {method[:40]!r}"
    return "" if fits else f"a ref that {method[:40]!r} cannot take"


def is_number(value: Any) -> bool:
    return isinstance(value, NUMBER) and not isinstance(value, bool)
