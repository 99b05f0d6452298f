"""Calls of the tool `computer_use`: the last one counts, and bad arguments are no action."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rla_screens.screens.computer_use import deed_of_tool_call, tool_call_of
from rla_screens.screens.deeds import Motion, ScreenDeed
from rla_screens.screens.forms import FORMS, deed_of_action

from tests.unit.test_text import assert_thoughts_are_not_read

SIGNS = 'a\\b "c"\n\r\b\u0001'


def called(**arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'computer_use', 'arguments': arguments})}\n</tool_call>"


@pytest.mark.parametrize(
    ("reply", "deed"),
    [
        (called(action="left_click", coordinate=[512, 340]), ScreenDeed(motion=Motion.CLICK, at=(512, 340))),
        (called(action="left_click"), ScreenDeed(motion=Motion.CLICK)),
        (called(action="triple_click"), ScreenDeed(motion=Motion.CLICK, count=3)),
        (called(action="right_click"), ScreenDeed(motion=Motion.CLICK, button="right")),
        (called(action="key", keys=["ctrl", "+"]), ScreenDeed(motion=Motion.PRESS, keys=("Control", "+"))),
        (called(action="type", text=SIGNS), ScreenDeed(motion=Motion.TYPE, text=SIGNS)),
        (called(action="double_click", coordinate=[0, 999]), ScreenDeed(motion=Motion.CLICK, at=(0, 999), count=2)),
        (called(action="left_click_drag", coordinate=[5, 6]), ScreenDeed(motion=Motion.DRAG, to=(5, 6))),
        (called(action="key", keys=["ctrl", "s"]), ScreenDeed(motion=Motion.PRESS, keys=("Control", "s"))),
        (called(action="type", text="</tool_call>"), ScreenDeed(motion=Motion.TYPE, text="</tool_call>")),
        (called(action="scroll", pixels=-300), ScreenDeed(motion=Motion.SCROLL, down=300)),
        (called(action="wait", time=2), ScreenDeed(motion=Motion.WAIT, wait=2000)),
        (called(action="terminate", status="failure"), ScreenDeed(motion=Motion.DONE, succeeded=False)),
    ],
)
def test_a_call_is_read(reply: str, deed: ScreenDeed) -> None:
    assert deed_of_tool_call(reply) == deed
    assert deed_of_tool_call(tool_call_of(deed)) == deed
    assert deed_of_action(FORMS["computer_use"].action(deed)) == deed  # as an episode stores and does it


def test_the_last_call_counts() -> None:
    reply = f"Action: first.\n{called(action='wait')}\n{called(action='terminate', status='success')}"
    assert deed_of_tool_call(reply) == ScreenDeed(motion=Motion.DONE)


@pytest.mark.parametrize(
    "reply",
    [
        "I click on the button.",
        called(action="left_click", coordinate=[1000, 0]),
        called(action="left_click", coordinate=[1]),
        called(action="left_click", coordinate=["1; import os", 2]),
        called(action="left_click", coordinate=[True, False]),
        called(action="left_click", coordinate=None),
        called(action="mouse_move"),
        called(action="key", keys=["a'); import os; ('"]),
        called(action="key", keys=[]),
        called(action="key", keys=["ctrl", 5]),
        called(action="type", text=""),
        called(action="type", text=["a"]),
        called(action="wait", time=1e9),
        called(action="format_disk"),
        called(action=["left_click"]),
        '<tool_call>{"name": "other", "arguments": {"action": "wait"}}</tool_call>',
        '<tool_call>{"name": "computer_use", "arguments": {"action": "wait"}}</tool_call> and more',
        '<tool_call>{"name": "computer_use", "arguments": {"action": "wait", "time": Infinity}}</tool_call>',
        "<tool_call>" + "[" * 100_000,
        "<tool_call>" + '{"name": ' * 1_000,
    ],
)
def test_everything_else_is_no_action(reply: str) -> None:
    assert deed_of_tool_call(reply) is None


def test_a_call_in_a_thought_is_not_read() -> None:
    assert_thoughts_are_not_read(deed_of_tool_call, called(action="terminate"))
