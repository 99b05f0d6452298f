"""From the text of a policy to an action by a server's schema."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from rla_bridges.adapters.openenv_actions import Unreadable, form_of, read_action, usage

from rla.errors import UserError


def schema(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"properties": {"metadata": {"type": "object"}} | properties, "required": required}


TEXT = form_of(schema(["message"], message={"type": "string"}))
CODE = form_of(schema(["code"], code={"type": "string"}, timeout={"anyOf": [{"type": "number"}, {"type": "null"}]}))
CELL = form_of(schema(["row", "column"], row={"type": "integer"}, column={"type": "integer"}))
SEND = form_of(schema(["to", "text"], to={"enum": ["Ann", "Bob"], "type": "string"}, text={"type": "string"}))
NUMBER = form_of(schema(["n"], n={"type": "integer"}))
MIXED = form_of(
    {
        "properties": {
            "kind": {"const": "move", "type": "string"},
            "way": {"$ref": "#/$defs/Way"},
            "fast": {"type": "boolean"},
            "speed": {"type": "number"},
            "path": {"type": "array"},
        },
        "required": ["way"],
        "$defs": {"Way": {"enum": ["north", "south"], "type": "string"}},
    }
)
CASES = [
    (TEXT, "go to desk 1", {"message": "go to desk 1"}),
    (TEXT, '{"message": "x"}', {"message": '{"message": "x"}'}),  # the whole text, whatever it looks like
    (TEXT, "", {"message": ""}),
    (CODE, "x = 1\nprint(x)", {"code": "x = 1\nprint(x)"}),
    (CODE, '{"code": "1", "timeout": 2.5}', {"code": "1", "timeout": 2.5}),
    (CODE, '{"a": 1}', {"code": '{"a": 1}'}),  # an object that does not name the required field is text
    (CELL, '{"row": 1, "column": 2}', {"row": 1, "column": 2}),
    (CELL, '```json\n{"row": 1, "column": 2}\n```', {"row": 1, "column": 2}),
    (CELL, "row=1 column=2", {"row": 1, "column": 2}),
    (CELL, "column=-2, row=+1", {"row": 1, "column": -2}),
    (CELL, "  1   2 ", {"row": 1, "column": 2}),
    (SEND, "Ann hello there you", {"to": "Ann", "text": "hello there you"}),
    (SEND, "bob don't", {"to": "Bob", "text": "don't"}),
    (SEND, "to=Ann text=hello there", {"to": "Ann", "text": "hello there"}),
    (SEND, 'to=Ann text="a  b"', {"to": "Ann", "text": "a  b"}),
    (NUMBER, "42", {"n": 42}),
    (NUMBER, "n=42", {"n": 42}),
    (NUMBER, '{"n": 42}', {"n": 42}),
    (MIXED, "South", {"kind": "move", "way": "south"}),
    (MIXED, "way=north fast=TRUE speed=1e2", {"kind": "move", "way": "north", "fast": True, "speed": 100.0}),
    (MIXED, '{"way": "north", "path": [1], "fast": null}', {"kind": "move", "way": "north", "path": [1]}),
    (MIXED, '{"kind": "move", "way": "north"}', {"kind": "move", "way": "north"}),
]


@pytest.mark.parametrize(("form", "text", "action"), CASES)
def test_a_text_is_read_by_the_schema(form: Any, text: str, action: dict[str, Any]) -> None:
    assert read_action(text, form) == action


BAD = [
    (CELL, "", "row is missing"),
    (CELL, "1", "column is missing"),
    (CELL, "1 2 3", "3 values where 2"),
    (CELL, "one two", "row must be integer, not 'one'"),
    (CELL, "row=1", "column is missing"),
    (CELL, "row=1 row=2 column=3", "row is there twice"),
    (CELL, '{"row": 1}', "column is missing"),
    (CELL, '{"row": 1.5, "column": 2}', "row must be integer"),
    (CELL, '{"row": true, "column": 2}', "row must be integer"),
    (CELL, '{"row": null, "column": 2}', "row must be integer"),
    (CELL, '{"row": 1, "column": 2, "admin": true}', "there is no field 'admin'"),
    (CELL, '{"row": NaN, "column": 2}', "not a JSON object"),
    (CELL, "```\nrow=1 column=2\n```", "not a JSON object"),
    (CELL, "[1, 2]", "row must be integer"),
    (CELL, f"{'9' * 400} 1", "row must be integer"),
    (CELL, '"1 2', "quote is not closed"),
    (SEND, "Eve hello", "to must be Ann|Bob, not 'Eve'"),
    (NUMBER, "٣", "n must be integer"),  # a digit, but not one that JSON has
    (NUMBER, "", "n must be integer"),
    (MIXED, "way=north speed=nan", "speed must be number"),
    (MIXED, "way=north speed=1e999", "speed must be number"),
    (MIXED, "way=north path=[1", "path must be array"),
    (MIXED, "way=north path=[1e999]", "path must be array"),
    (MIXED, '{"way": "north", "path": [1e999]}', "not a JSON object"),
    (MIXED, f"way=north path={'[' * 100_000}", "path must be array"),
    (MIXED, '{"way": "north", "kind": "delete", "path": {}}', "path must be array"),
]


@pytest.mark.parametrize(("form", "text", "reason"), BAD)
def test_a_text_that_is_no_action_is_told_why(form: Any, text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=re.escape(reason)):
        read_action(text, form)


def test_a_constant_cannot_be_changed_by_the_policy() -> None:
    assert read_action('{"way": "north", "kind": "delete"}', MIXED)["kind"] == "move"


def test_a_deeply_nested_object_is_no_action() -> None:
    with pytest.raises(Unreadable):
        read_action('{"row":' * 100_000, CELL)


def test_a_bad_value_is_shown_cut() -> None:
    with pytest.raises(Unreadable) as flaw:
        read_action(f"{'x' * 5000} 1", CELL)
    assert len(str(flaw.value)) < 200


def test_usage_says_how_an_action_is_written() -> None:
    assert usage(CELL) == "row=<integer> column=<integer>"
    assert usage(MIXED) == "way=<north|south> [fast=<boolean>] [speed=<number>] [path=<array>]"


@pytest.mark.parametrize(
    "hostile",
    [
        {},
        {"properties": []},
        {"properties": {"a": {}}, "required": "a"},
        {"properties": {str(n): {} for n in range(65)}},
        {"properties": {"n" * 101: {}}},
    ],
)
def test_a_schema_that_is_none_is_refused(hostile: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="action schema"):
        form_of(hostile)


@pytest.mark.parametrize(
    "odd", [None, 3, [], {"$ref": "#/$defs/a"}, {"$ref": 5}, {"anyOf": [{"anyOf": []}]}, {"type": ["integer"]}]
)
def test_a_field_of_an_odd_schema_takes_any_json(odd: Any) -> None:
    form = form_of({"properties": {"a": odd}, "required": ["a"], "$defs": {"a": {"$ref": "#/$defs/a"}}})
    assert read_action("[1]", form) == {"a": [1]}
    assert json.dumps(read_action('{"a": "x"}', form)) == '{"a": "x"}'


def test_an_action_stands_after_the_thoughts() -> None:
    form = form_of(schema(["row"], row={"type": "integer"}))
    assert read_action("<think>row=1</think>\nrow=2", form) == {"row": 2}
