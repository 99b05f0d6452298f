"""From the text of a policy to an OpenEnv action, which is a JSON object described by the server's action schema.

Fields that the schema fixes to one value are filled in, and `metadata` is left out. The remaining fields decide:

1. A single field, or a single required field, of type string gets the whole text. (If there are optional fields as
  well, a JSON object that names the required one is read as such.)
2. Otherwise the text is one of
   - a JSON object, possibly between ``` fences;
   - `name=value` pairs: `row=1 column=2`. A value with spaces may be in double quotes;
   - the values of the required fields in the schema's order: `1 2`. If the last one is a string, it gets the rest.

Lists and objects are written as JSON. Everything else is `Unreadable`, with a reason that is shown to the policy.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rla.errors import UserError
from rla.text import after_thinking
from rla_bridges.lenient_json import lenient_loads

MOST_FIELDS = 64
LONGEST_NAME = 100
SHOWN_CHOICES = 12
SHOWN = 80  # characters of a bad value that are shown to a policy
WORD = re.compile(r'(?:[^\s"]|"[^"]*")+')
WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
DECIMAL = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,3})?")
TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


class Unreadable(Exception):
    """The text is not an action; the message is for the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionField:
    """A field of an action. `kind`: a JSON type, or empty for any. `choices`: all allowed values, if they are few."""

    name: str
    kind: str
    required: bool
    choices: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionForm:
    """The parts of an action: `fields` that a policy fills in, and values that are always the same."""

    fields: tuple[ActionField, ...]
    constants: Mapping[str, Any]

    @property
    def subject(self) -> ActionField | None:
        """The only field, or the only required one: it takes text without any markup."""
        needed = [field for field in self.fields if field.required]
        if len(self.fields) == 1:
            return self.fields[0]
        return needed[0] if len(needed) == 1 else None

    @property
    def plain(self) -> bool:
        """Whether any text is an action."""
        return self.subject is not None and self.subject.kind == "string" and not self.subject.choices


def form_of(schema: Mapping[str, Any]) -> ActionForm:
    """The form of a JSON Schema. Raises UserError if it does not describe an object, or if it is too large."""
    properties = schema.get("properties")
    required = schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list) or len(properties) > MOST_FIELDS:
        raise UserError("the server's action schema is not one of an object with up to 64 fields; it cannot be played")
    definitions = schema.get("$defs", {})
    fields, constants = list[ActionField](), dict[str, Any]()
    for name, given in properties.items():
        if len(name) > LONGEST_NAME:
            raise UserError("the server's action schema has a name of over 100 characters; it cannot be played")
        found = _resolved(given, definitions)
        if "const" in found:
            constants[name] = found["const"]
        elif name != "metadata":
            kind = found.get("type")
            choices = found.get("enum")
            field = ActionField(
                name=name,
                kind=kind if isinstance(kind, str) and kind in TYPES else "",
                required=name in required,
                choices=tuple(choices) if isinstance(choices, list) else (),
            )
            fields.append(field)
    return ActionForm(fields=tuple(fields), constants=constants)


def _resolved(given: Any, definitions: Any) -> dict[str, Any]:
    """The schema behind references and `X or null`, as pydantic writes them."""
    for _ in range(4):
        if not isinstance(given, dict):
            return {}
        parts = given.get("anyOf") or given.get("allOf")
        reference = given.get("$ref")
        if isinstance(parts, list):
            real = [part for part in parts if isinstance(part, dict) and part.get("type") != "null"]
            given = real[0] if len(real) == 1 else {}
        elif isinstance(reference, str):
            given = definitions.get(reference.removeprefix("#/$defs/")) if isinstance(definitions, dict) else None
        else:
            return given
    return {}


def read_action(text: str, form: ActionForm) -> dict[str, Any]:
    """The action that a text describes, constants included. Raises Unreadable."""
    return {**form.constants, **_values(after_thinking(text), form)}


def _values(text: str, form: ActionForm) -> dict[str, Any]:
    subject = form.subject
    if subject is not None and form.plain:
        found = object_action(text) if len(form.fields) > 1 else None
        return checked_fields(found, form) if found is not None and subject.name in found else {subject.name: text}
    found = object_action(text)
    if found is not None:
        return checked_fields(found, form)
    if text.lstrip().startswith(("{", "```")):
        raise Unreadable("it is not a JSON object")
    words = _words(text)
    names = {field.name: field for field in form.fields}
    if words and "=" in words[0] and words[0].partition("=")[0] in names:
        return _complete(_pairs(words, names), form)
    if subject is not None:
        return {subject.name: _value(text.strip(), subject)}
    return _complete(_in_order(words, form), form)


def object_action(text: str) -> dict[str, Any] | None:
    """The JSON object in a text, with or without fences; None if the text is not one."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        stripped = stripped[3:-3].partition("\n")[2].strip()
    if not stripped.startswith("{"):
        return None
    try:
        found = _strict_json(stripped)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _strict_json(text: str) -> Any:
    """Parse JSON. Raises ValueError and RecursionError; also for values that cannot be written again, such as 1e999."""
    found = lenient_loads(text)
    json.dumps(found, allow_nan=False)
    return found


def _words(text: str) -> list[str]:
    if text.count('"') % 2:
        raise Unreadable("a double quote is not closed")
    return [word.replace('"', "") for word in WORD.findall(text)]


def _pairs(words: Sequence[str], names: Mapping[str, ActionField]) -> dict[str, Any]:
    texts, last = dict[str, str](), ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in names:
            if name in texts:
                raise Unreadable(f"{name} is there twice")
            texts[name], last = value.rstrip(",") if names[name].kind != "string" else value, name
        else:
            texts[last] += f" {word}"
    return {name: _value(value, names[name]) for name, value in texts.items()}


def _in_order(words: Sequence[str], form: ActionForm) -> dict[str, Any]:
    wanted = [field for field in form.fields if field.required] or list(form.fields)
    rest = len(words) > len(wanted) and wanted[-1].kind == "string"
    if len(words) > len(wanted) and not rest:
        raise Unreadable(f"{len(words)} values where {len(wanted)} are asked for")
    parts = [*words[: len(wanted) - 1], " ".join(words[len(wanted) - 1 :])] if rest else words
    return {field.name: _value(part, field) for field, part in zip(wanted, parts, strict=False)}


def _value(text: str, field: ActionField) -> Any:
    """The value of a field from its text. Raises Unreadable."""
    if field.choices:
        return _chosen(text, field)
    if field.kind == "string":
        return text
    if field.kind == "integer" and WHOLE.fullmatch(text):
        return int(text)
    if field.kind == "number" and DECIMAL.fullmatch(text):
        return _fitting(float(text), field)
    if field.kind == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if field.kind in ("array", "object", ""):
        try:
            return _fitting(_strict_json(text), field)
        except (ValueError, RecursionError):
            pass
    raise Unreadable(f"{field.name} must be {asked(field)}, not {text[:SHOWN]!r}")


def _chosen(text: str, field: ActionField) -> Any:
    exact = [choice for choice in field.choices if _said(choice) == text]
    loose = [choice for choice in field.choices if _said(choice).lower() == text.lower()]
    found = exact or loose
    if len(found) != 1:
        raise Unreadable(f"{field.name} must be {asked(field)}, not {text[:SHOWN]!r}")
    return found[0]


def _said(choice: Any) -> str:
    return choice if isinstance(choice, str) else json.dumps(choice)


def checked_fields(found: Mapping[str, Any], form: ActionForm) -> dict[str, Any]:
    """The fields of a JSON object, if the names are known and the values have the right types. Raises Unreadable."""
    names = {field.name: field for field in form.fields}
    values = {name: value for name, value in found.items() if name not in form.constants}
    unknown = [name for name in values if name not in names]
    if unknown:
        raise Unreadable(f"there is no field {unknown[0][:SHOWN]!r}")
    given = {name: value for name, value in values.items() if value is not None or names[name].required}
    return _complete({name: _fitting(value, names[name]) for name, value in given.items()}, form)


def _fitting(value: Any, field: ActionField) -> Any:
    right = TYPES.get(field.kind, (object,))
    fits = isinstance(value, right) and (not isinstance(value, bool) or bool in right or object in right)
    if isinstance(value, float) and not math.isfinite(value):
        fits = False
    if not fits or (field.choices and value not in field.choices):
        raise Unreadable(f"{field.name} must be {asked(field)}")
    return value


def _complete(values: dict[str, Any], form: ActionForm) -> dict[str, Any]:
    missing = [field.name for field in form.fields if field.required and field.name not in values]
    if missing:
        raise Unreadable(f"{missing[0]} is missing")
    return values


def asked(field: ActionField) -> str:
    """The type or the choices of a field, in words."""
    if field.choices:
        return "|".join(map(_said, field.choices[:SHOWN_CHOICES])) + ("|..." * (len(field.choices) > SHOWN_CHOICES))
    return field.kind or "JSON"


def usage(form: ActionForm) -> str:
    """How an action is written: `row=<integer> [note=<string>]`."""
    parts = (
        f"{field.name}=<{asked(field)}>" if field.required else f"[{field.name}=<{asked(field)}>]"
        for field in form.fields
    )
    return " ".join(parts)
