"""Calls by BrowserGym's names: what is read, what is refused, and that a deed comes back from its call."""

from __future__ import annotations

import pytest
from rla_screens.screens.calls import call_of_deed, deed_of_call
from rla_screens.screens.deeds import Motion, ScreenDeed


@pytest.mark.parametrize(
    ("text", "deed"),
    [
        ("mouse_click(512, 340)", ScreenDeed(motion=Motion.CLICK, at=(512, 340))),
        ("mouse_click(x=512, y=340.4, button='right')", ScreenDeed(motion=Motion.CLICK, at=(512, 340), button="right")),
        ("  mouse_dblclick(0,999)\n", ScreenDeed(motion=Motion.CLICK, at=(0, 999), count=2)),
        ("mouse_tripleclick(4, 5, 'middle')", ScreenDeed(motion=Motion.CLICK, at=(4, 5), button="middle", count=3)),
        ("mouse_click()", ScreenDeed(motion=Motion.CLICK)),
        ("mouse_dblclick(button='right')", ScreenDeed(motion=Motion.CLICK, button="right", count=2)),
        ("mouse_down()", ScreenDeed(motion=Motion.DOWN)),
        ("mouse_drag_and_drop(to_x=3, to_y=4)", ScreenDeed(motion=Motion.DRAG, to=(3, 4))),
        ("keyboard_press('Control++')", ScreenDeed(motion=Motion.PRESS, keys=("Control", "+"))),
        ("mouse_drag_and_drop(1, 2, 3, 4)", ScreenDeed(motion=Motion.DRAG, at=(1, 2), to=(3, 4))),
        ("scroll(0, -200)", ScreenDeed(motion=Motion.SCROLL, down=-200)),
        ('keyboard_type("a \\"b\\" (c), d=1")', ScreenDeed(motion=Motion.TYPE, text='a "b" (c), d=1')),
        ("keyboard_press('Control+a')", ScreenDeed(motion=Motion.PRESS, keys=("Control", "a"))),
        ("keyboard_press('+')", ScreenDeed(motion=Motion.PRESS, keys=("+",))),
        ("noop()", ScreenDeed(motion=Motion.WAIT, wait=1000)),
        ("done()", ScreenDeed(motion=Motion.DONE)),
    ],
)
def test_a_call_is_read(text: str, deed: ScreenDeed) -> None:
    assert deed_of_call(text) == deed
    assert deed_of_call(call_of_deed(deed)) == deed


@pytest.mark.parametrize(
    "text",
    [
        "mouse_click(1000, 0)",
        "mouse_click(-1, 0)",
        "mouse_click(5)",
        "mouse_click(1, 2, 3, 4)",
        "mouse_click(1, y=2, x=3)",
        "mouse_click(y=2)",
        "mouse_move()",
        "mouse_drag_and_drop(3, 4)",
        "mouse_drag_and_drop(from_x=1, to_x=3, to_y=4)",
        "keyboard_press('Control+')",
        "keyboard_press('+a')",
        "mouse_click(1, 2, button='side')",
        "mouse_click(nan, inf)",
        "mouse_click(1e2, 5)",
        "mouse_click(0x10, 5)",
        "mouse_click(1_0, 5)",
        "mouse_click(1, 2); mouse_click(3, 4)",
        "mouse_click(1, 2) mouse_click(3, 4)",
        "I click: mouse_click(1, 2)",
        "__import__('os').system('id')",
        "keyboard_type(open('/etc/passwd').read())",
        "keyboard_type('a' * 9)",
        "keyboard_type(f'{1}')",
        "keyboard_type('')",
        "keyboard_type('two\nlines')",
        "keyboard_press('BrowserBack')",
        "keyboard_press('a+b+c+d+e')",
        "keyboard_press('')",
        "noop(-5)",
        "noop(999999999)",
        "scroll(0, 99999)",
        "done(1)",
        "goto('http://example.com')",
        "mouse_click(" + "(" * 100_000,
        "keyboard_type('" + "\\" * 100_001 + "')",
        "",
    ],
)
def test_everything_else_is_no_action(text: str) -> None:
    assert deed_of_call(text) is None


def test_only_known_escapes_stand_for_something() -> None:
    found = deed_of_call(r"keyboard_type('a\nb\x41\u0041')")
    assert found is not None
    assert found.text == "a\nb\\x41\\u0041"
