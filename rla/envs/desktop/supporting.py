"""What a task asks that cannot be done or judged here, found when it is read, without a machine.

Every function gives why in a few words, and an empty text where nothing is wrong. Tasks are data of others: any part of
one may have any shape that JSON has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from rla.envs.coding.fences import is_text
from rla.envs.desktop.getting import GETTERS
from rla.envs.desktop.json_rules import is_number, lacking_of_json
from rla.envs.desktop.measuring import METRICS, OURS
from rla.envs.desktop.params import DesktopParams
from rla.envs.desktop.resources import ResourceMissing, data_of_url, reachable
from rla.envs.desktop.scenarios import INFEASIBLE, Scenario
from rla.envs.desktop.setting_up import STEPS, never_filled
from rla.envs.desktop.verifying import NotScored, evaluator_parts, measured_here

Fits = Callable[[Any], bool]
LONGEST = 1 << 20  # characters of a text
NOT_HAD = "a file that cannot be had (env.own.files, env.own.download)"
NEEDS_OFFICIAL = "(env.own.osworld_python)"
NOT_OFFICIAL = "the desktop_env of env.own.osworld_python does not have"
WITH_RULES = frozenset({"exact_match", "match_in_list", "is_in_list", "check_include_exclude", "check_json", *OURS})
WITH_FILES = frozenset({"compare_text_file", "compare_csv"})
FILES = frozenset({"vm_file", "cloud_file"})


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != "" and is_text(value, longest=LONGEST)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) and is_text(each, longest=LONGEST) for each in value)


def _command(value: Any) -> bool:
    words = value if isinstance(value, list) else [value]
    return value != [] and all(_text(word) or (isinstance(value, list) and is_number(word)) for word in words)


def _flag(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | str)


def _seconds(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and float(value) >= 0
    except (TypeError, ValueError, ArithmeticError):
        return False


def _until(value: Any) -> bool:
    known = {"returncode": int, "stdout": str, "stderr": str}
    return not value or (isinstance(value, dict) and all(isinstance(v, known.get(k, ())) for k, v in value.items()))


def _transfers(source: str) -> Fits:
    """A list of files from `source` to a path."""

    def fits(value: Any) -> bool:
        entries = value if isinstance(value, list) else [None]
        return all(isinstance(each, dict) and _text(each.get(source)) and _text(each.get("path")) for each in entries)

    return fits


def _anything(value: Any) -> bool:
    return True


# By their types: what steps need, and what they may have.
RUN: tuple[Mapping[str, Fits], Mapping[str, Fits]] = (
    {"command": _command},
    {"shell": _flag, "until": _until, "stdout": _flag, "stderr": _flag},
)
WINDOW: tuple[Mapping[str, Fits], Mapping[str, Fits]] = ({"window_name": _text}, {"strict": _flag, "by_class": _flag})
FIELDS: Mapping[str, tuple[Mapping[str, Fits], Mapping[str, Fits]]] = {
    "download": ({"files": _transfers("url")}, {}),
    "upload_file": ({"files": _transfers("local_path")}, {}),
    "open": ({"path": _text}, {}),
    "launch": ({"command": _command}, {"shell": _flag}),
    "execute": RUN,
    "command": RUN,
    "sleep": ({"seconds": _seconds}, {}),
    "activate_window": WINDOW,
    "close_window": WINDOW,
}
# What getters need; OSWorld's, too, pass over what they do not know.
LOOKS: Mapping[str, Mapping[str, Fits]] = {
    "vm_command_line": {"command": _command},
    "vm_command_error": {"command": _command},
    "list_directory": {"path": _text},
    "rule": {"rules": _anything},
}


def unsupported(scenario: Scenario, own: DesktopParams, official: Collection[str] | None = None) -> str:
    """Why a task cannot be played and judged here. `official`: the metrics that OSWorld's Python has; None: it was not
    asked, and they are taken on trust where there is such a Python.
    """
    evaluator = scenario.evaluator
    reason = unsupported_steps(list(scenario.config), own) or unsupported_steps(evaluator.get("postconfig") or [], own)
    if reason or evaluator["func"] == INFEASIBLE:
        return reason
    func = evaluator["func"]
    if not _text(func) and not (_texts(func) and func):
        return "an evaluator whose func is no name"
    if evaluator.get("conj", "and") not in ("and", "or"):
        return f"conj {str(evaluator['conj'])[:40]!r}"
    try:
        parts = evaluator_parts(evaluator)
    except NotScored as flaw:
        return str(flaw)
    return next((reason for part in parts if (reason := unsupported_part(*part, own, official))), "")


def unsupported_part(
    name: str, result: Any, expected: Any, options: Any, own: DesktopParams, official: Collection[str] | None
) -> str:
    if name == INFEASIBLE or (name not in METRICS and not own.osworld_python):
        return f"metric {name!r} {NEEDS_OFFICIAL}"
    if not isinstance(result, dict):
        return "an evaluator that looks at nothing"
    if reason := unsupported_getter(result, own) or unsupported_getter(expected, own):
        return reason
    if not isinstance(options, dict):
        return "options that are no JSON object"
    if measured_here(name, (expected or {}).get("rules"), options, own):
        return unsupported_metric(name, result, expected, options)
    return "" if official is None or name in official else f"metric {name[:40]!r}, which {NOT_OFFICIAL}"


def unsupported_metric(name: str, result: Mapping[str, Any], expected: Any, options: Mapping[str, Any]) -> str:
    """Of a metric of our own."""
    if not expected:
        return f"{name} that expects nothing"
    if reason := unsupported_result(name, result):
        return reason
    if gives_several(expected) and name != "compare_csv":
        return f"{name} with several files to compare with"
    rule = expected["rules"] if expected["type"] == "rule" else None
    if name in WITH_FILES and rule is not None:
        return f"{name} with a rule in place of a file"
    if name in WITH_RULES and expected["type"] != "rule":
        return f"{name} without a rule"
    if unknown := set(options) - {"is_yaml"} if name == "check_json" else set(options) if name in WITH_RULES else set():
        return f"{name} with the option {min(unknown)[:40]!r}"
    if name == "literal_match" and options.get("type", "str") not in ("str", "list"):
        return f"literal_match of {str(options['type'])[:40]!r}"
    if name == "check_json":
        lacking = lacking_of_json(rule)
        return f"check_json with {lacking}" if lacking else ""
    return "" if name not in WITH_RULES or RULES[name](rule) else f"{name} with rules that it cannot take"


def unsupported_result(name: str, result: Mapping[str, Any]) -> str:
    """What a metric of our own looks at."""
    if gives_several(result):
        return f"{name} of several files"
    if name == "check_cells" and result["type"] not in FILES:
        return "check_cells of what is no file"
    if name == "is_in_list" and result["type"] in FILES:
        return "is_in_list of a file"
    searched = name in ("is_in_list", "check_include_exclude") and result["type"] == "rule"
    return (
        f"{name} of a rule that is no list" if searched and not isinstance(result["rules"], list | str | dict) else ""
    )


def gives_several(given: Mapping[str, Any]) -> bool:
    """Of a getter that is supported; only those of files have `multi` and `gives`."""
    return given["type"] in FILES and bool(given.get("multi")) and len(given.get("gives", [0])) != 1


def _has(key: str, fits: Fits) -> Fits:
    return lambda rules: isinstance(rules, dict) and key in rules and fits(rules[key])


def _included(rules: Any) -> bool:
    return isinstance(rules, dict) and all(_texts(rules.get(side, [])) for side in ("include", "exclude"))


def _cells(rules: Any) -> bool:
    if not isinstance(rules, dict) or not isinstance(rules.get("cells", {}), dict):
        return False
    return _texts(rules.get("sheets", [])) and isinstance(rules.get("sheet", ""), str)


RULES: Mapping[str, Fits] = {
    "exact_match": _has("expected", _anything),
    "match_in_list": _has("expected", lambda value: isinstance(value, list)),
    "is_in_list": _has("expected", lambda value: isinstance(value, str)),
    "check_include_exclude": _included,
    "check_lines": _has("lines", lambda value: isinstance(value, list)),
    "check_cells": _cells,
}


def unsupported_steps(steps: Any, own: DesktopParams) -> str:
    if not isinstance(steps, list):
        return "a setup that is no list"
    return next((reason for step in steps if (reason := unsupported_step(step, own))), "")


def unsupported_step(step: Any, own: DesktopParams) -> str:
    kind = step.get("type") if isinstance(step, dict) else None
    if not isinstance(kind, str) or kind not in STEPS:
        return f"setup {str(kind)[:40]!r}"
    given, (needed, may) = step.get("parameters", {}), FIELDS[kind]
    if not isinstance(given, dict):
        return f"setup {kind} without parameters"
    for name, value in given.items():
        fits = needed.get(name) or may.get(name)
        if fits is None or not fits(value):
            return f"setup {kind} with this {name[:40]!r}"
    if missing := needed.keys() - given.keys():
        return f"setup {kind} without {min(missing)!r}"
    if lacking := never_filled(given.get("command", "")):
        return f"setup {kind} with {lacking}"
    addresses = [
        entry["url"] if kind == "download" else Path(entry["local_path"]).name for entry in given.get("files", [])
    ]
    return "" if all(has_file(each, own) for each in addresses) else NOT_HAD


def has_file(address: str, own: DesktopParams) -> bool:
    """Whether a file can be had. An address of data has to be one."""
    try:
        if address.startswith("data:"):
            data_of_url(address)
        return reachable(address, own)
    except (ResourceMissing, ValueError):
        return False


def unsupported_getter(given: Any, own: DesktopParams) -> str:
    if not given:
        return ""
    kind = given.get("type") if isinstance(given, dict) else None
    if not isinstance(kind, str) or kind not in GETTERS:
        return f"getter {str(kind)[:40]!r}"
    for name, fits in LOOKS.get(kind, {}).items():
        if name not in given or not fits(given[name]):
            return f"getter {kind} with this {name!r}"
    if lacking := never_filled(given.get("command", "")):
        return f"getter {kind} with {lacking}"
    return unsupported_files(kind, given, own) if kind in FILES else ""


def unsupported_files(kind: str, given: Mapping[str, Any], own: DesktopParams) -> str:
    several, path, dest = bool(given.get("multi")), given.get("path"), given.get("dest")
    if not (_texts(path) and path if several else _text(path)):
        return f"getter {kind} with this 'path'"
    paths = path if isinstance(path, list) else [str(path)]
    if (dest or (several and dest == [])) and not (
        _texts(dest) and len(dest) == len(paths) if several else isinstance(dest, str)
    ):
        return f"getter {kind} with this 'dest'"
    gives = given.get("gives", [0])
    places = range(len(paths))
    if several and not (isinstance(gives, list) and gives and all(type(n) is int and n in places for n in gives)):
        return f"getter {kind} with this 'gives'"
    if given.get("time_suffix"):
        return f"getter {kind} with 'time_suffix'"
    return NOT_HAD if kind == "cloud_file" and not all(has_file(each, own) for each in paths) else ""
