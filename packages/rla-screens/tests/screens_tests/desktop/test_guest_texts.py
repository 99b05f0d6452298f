"""What a guest reads of others: programs of pyautogui, commands, and bodies of requests."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from email.message import Message

import pytest
from rla_programs.execution.interpreter import base_interpreter
from rla_screens.desktop.episode import guest_deed
from rla_screens.desktop.guest.hands import Hands, draw_cursor, keysym_of, png_file
from rla_screens.desktop.guest.programs import words_of_command
from rla_screens.desktop.guest.restless import restless, thread_states
from rla_screens.desktop.guest.server import read_body
from rla_screens.desktop.guest.spoken import deeds_of_program
from rla_screens.desktop.local import LocalDesktop
from rla_screens.desktop.params import DesktopParams
from rla_screens.desktop.pyautogui_source import program_of_deeds
from rla_screens.desktop.walls import Walls
from rla_screens.screens.forms import deed_of_action

DEEDS = [
    "mouse_click(500, 500)",
    'mouse_click(10, 20, "right")',
    "mouse_dblclick(1, 2)",
    "mouse_drag_and_drop(1, 2, 900, 800)",
    "scroll(0, 120)",
    'keyboard_type("it\'s \\"<b>\\"")',
    'keyboard_press("Control+Shift+n")',
    "noop(250)",
]


@pytest.mark.parametrize("action", DEEDS)
def test_a_deed_as_a_program_is_read_back_as_the_same_deeds(action: str) -> None:
    deed = deed_of_action(action)
    assert deed is not None
    given = guest_deed(deed, (1280, 720))
    read = deeds_of_program(program_of_deeds([given]))
    assert read is not None
    motions = [each["motion"] for each in read]
    assert motions[-1] == given["motion"] or given["motion"] == "type"
    said = "".join("<" if each.get("keys") == ["shift", ","] else each.get("text", "") for each in read)
    assert said == given["text"]


@pytest.mark.parametrize(
    "source",
    [
        "import os; os.system('x')",
        "pyautogui.click(open('x'))",
        "import pyautogui; pyautogui.alert('x')",
        "for i in range(9): pyautogui.click()",
        "pyautogui.press('a'); print(1)",
        "pyautogui.click(1,",
        "(" * 5000,
    ],
)
def test_any_other_program_is_none_of_deeds(source: str) -> None:
    assert deeds_of_program(source) is None


def test_hotkeys_and_pauses_of_osworld_are_deeds() -> None:
    source = "import pyautogui; import time; pyautogui.hotkey('ctrl', 's'); time.sleep(0.5)"
    assert deeds_of_program(source) == [{"motion": "press", "keys": ["ctrl", "s"]}, {"motion": "wait", "wait": 500.0}]


def test_points_are_pixels_and_keys_have_the_names_of_x() -> None:
    deed = deed_of_action("mouse_click(999, 999)")
    assert deed is not None and guest_deed(deed, (1280, 720))["at"] == [1279, 719]
    assert [keysym_of(name) for name in ("Control", "ctrl", "Enter", "PageUp", "a", "+")] == [
        *("Control_L", "Control_L", "Return", "Prior", "a", "plus")
    ]


def test_the_cursor_is_drawn_over_the_screen() -> None:
    pixels = bytearray(b"\x10\x20\x30\x00" * 4)
    draw_cursor(pixels, (2, 2), (1, 0, 2, [0xFF0000FF, 0xFF00FF00, 0x00000000, 0xFFFFFFFF]))
    assert pixels == bytearray(b"\x10\x20\x30\x00" + b"\xff\x00\x00\x00" + b"\x10\x20\x30\x00" * 2)
    assert png_file(bytes(pixels), (2, 2), (0, 0, 0, [])).startswith(b"\x89PNG\r\n\x1a\n")


def test_commands_are_lists_or_texts() -> None:
    assert words_of_command("mousepad 'a b.txt'", False) == ["mousepad", "a b.txt"]
    assert words_of_command(["echo", 3], False) == ["echo", "3"]
    assert words_of_command("a | b", True) == ["/bin/sh", "-c", "a | b"]
    with pytest.raises(ValueError, match="no command"):
        words_of_command([], False)


def test_a_form_with_a_file_is_read() -> None:
    headers = Message()
    headers["Content-Type"] = "multipart/form-data; boundary=x"
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file_path"\r\n\r\n/a/b\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file_data"; filename="f"\r\n\r\n\x00\xffhi\r\n--x--\r\n'
    )
    assert read_body(headers, body) == ({"file_path": "/a/b"}, {"file_data": b"\x00\xffhi"})
    headers.replace_header("Content-Type", "application/json")
    assert read_body(headers, b"[" * 100_000) == ({}, {})


def test_a_process_that_computes_is_at_work_and_one_that_waits_is_not() -> None:
    programs = ("while True: pass", "import sys; print(flush=True); sys.stdin.read()")
    pipe = subprocess.PIPE
    busy, idle = (subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) for code in programs)
    try:
        assert idle.stdout is not None and idle.stdout.readline()
        until = time.monotonic() + 30
        wanted = False
        while not wanted and time.monotonic() < until:  # each once: it begins, and then it waits
            wanted = list(thread_states(busy.pid)) == ["R"] and list(thread_states(idle.pid)) == ["S"] and restless()
            time.sleep(0.01)
    finally:
        for each in (busy, idle):
            each.kill()
            each.communicate()
    assert wanted and list(thread_states(busy.pid)) == []


def test_a_thread_whose_state_cannot_be_read_is_not_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rla_screens.desktop.guest.restless.thread_states", lambda process: iter(["", "S"]))
    assert not restless()


class StillScreen:
    """A display on which nothing changes."""

    width = height = 1

    def __init__(self, name: str) -> None:
        self.name = name

    def grab(self) -> bytes:
        return bytes(4)

    def cursor(self) -> tuple[int, int, int, list[int]]:
        return 0, 0, 0, []


@pytest.mark.parametrize(("alone", "wanted"), [(True, 9), (False, 0)])
def test_only_on_a_machine_of_its_own_a_picture_waits_for_what_works(
    alone: bool, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def works() -> bool:
        asked.append(len(asked) < 8)
        return asked[-1]

    for name, value in {"Screen": StillScreen, "LOOK_S": 0.0, "restless": works}.items():
        monkeypatch.setattr(f"rla_screens.desktop.guest.hands.{name}", value)
    assert Hands(":0", alone=alone).png(still_ms=60_000).startswith(b"\x89PNG")
    assert len(asked) == wanted


class Open(Walls):
    """Of which only the commands are asked."""

    def __init__(self) -> None:
        self._python = base_interpreter()


def test_the_server_of_a_local_machine_is_told_that_nothing_else_runs_there() -> None:
    command = LocalDesktop(DesktopParams(), Open())._session(3)
    assert json.loads(command[-1])["server"][-3:] == ["--listening", "3", "--alone"]
