"""What cannot be played or judged is found when a task is read; no shape of JSON breaks the reading."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rla_screens.desktop.client import GuestClient
from rla_screens.desktop.importing import Unplayable, import_desktop_tasks, read_task
from rla_screens.desktop.machines import GuestAddress
from rla_screens.desktop.params import DesktopParams
from rla_screens.desktop.resources import ResourceMissing, keep, local_file, task_resource
from rla_screens.desktop.scenarios import scenario_of, scenario_of_json
from rla_screens.desktop.setting_up import SetupFailure, set_up
from rla_screens.desktop.verifying import NotScored, StateVerifier, unplayable_reason

from rla.errors import UserError

RULE = {"type": "rule", "rules": {"expected": "z"}}
LINE = {"type": "vm_command_line", "command": ["echo", "x"]}
FILE = {"type": "vm_file", "path": "/home/user/a.json", "dest": "a.json"}
TEXT = {"type": "cloud_file", "path": "data:,a", "dest": "b.txt"}
WINDOW = {"window_name": "a", "strict": True}
TASK: dict[str, Any] = {
    "id": "7",
    "instruction": "Do it.",
    "snapshot": "os",
    "related_apps": ["os"],
    "config": [
        {"type": "download", "parameters": {"files": [{"url": "data:,a%20b", "path": "/home/user/a"}]}},
        {"type": "launch", "parameters": {"command": ["mousepad"], "shell": False}},
        {"type": "execute", "parameters": {"command": "true", "shell": True, "until": {"returncode": 0}}},
        {"type": "open", "parameters": {"path": "/home/user/a"}},
        {"type": "sleep", "parameters": {"seconds": 0}},
        {"type": "activate_window", "parameters": WINDOW},
    ],
    "evaluator": {
        "postconfig": [{"type": "close_window", "parameters": WINDOW}],
        "func": ["exact_match", "check_lines", "check_include_exclude", "check_cells", "exact_match"],
        "conj": "or",
        "result": [
            LINE,
            FILE | {"multi": True, "path": ["/a", "/b"], "dest": ["a", "b"], "gives": [1]},
            LINE | {"multi": True, "gives": 5},
            FILE,
            {"type": "list_directory", "path": "/a"},
        ],
        "expected": [
            RULE,
            {"type": "rule", "rules": {"lines": ["a"], "share": True}},
            {"type": "rule", "rules": {"include": ["a"], "exclude": ["b"]}},
            {"type": "rule", "rules": {"cells": {"B2": "5"}, "sheet": "S", "sheets": ["S"]}},
            TEXT,
        ],
        "options": [{}, {}, {}, {}, {}],
    },
    "task_template": {"evaluator1": "Do it."},
    "solutions": {"evaluator1": ["done()"]},
    "wrong": [["fail()"]],
    "hints": ["Look."],
}
ODD: tuple[Any, ...] = (
    *(None, 0, -1, 1.5, True, 10**400, "", "x", "a\0", "\ud800", "http://[", "data:x", "y" * 300),
    *([], [[]], [None], {}, {"a": {}}),
)


def changed(found: Any, odd: Any) -> Iterator[Any]:
    """`found` with `odd` in each place, one after the other; without each key, too."""
    yield odd
    if isinstance(found, dict):
        for key, value in found.items():
            yield {name: each for name, each in found.items() if name != key}
            yield from (found | {key: other} for other in changed(value, odd))
    elif isinstance(found, list):
        for number, value in enumerate(found):
            yield from ([*found[:number], other, *found[number + 1 :]] for other in changed(value, odd))


class Guest(GuestClient):
    """A machine on which everything works."""

    async def _asked(self, method: str, path: str, body: Any = None, *, most: int = 0) -> bytes:
        return json.dumps({"output": "x", "error": "", "returncode": 0, "directory_tree": {}}).encode()


async def played(scenario: Any, own: DesktopParams, client: GuestClient | None = None) -> None:
    client = client or Guest.__new__(Guest)
    await set_up(scenario.config, client, own)
    await StateVerifier(own, None).score(scenario.evaluator, client, failed=False)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:12])
def test_a_task_of_any_shape_is_left_out_or_played_or_fails_in_one_of_two_ways(
    odd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(seconds: float) -> None:
        assert seconds >= 0

    monkeypatch.setattr("asyncio.sleep", at_once)
    own, place = DesktopParams(), tmp_path / "7.json"

    async def every() -> int:
        tasks = 0
        for found in changed(TASK, odd):
            place.write_text(json.dumps(found))
            try:
                read, _ = read_task(place, own, domain="os", split="train")
            except (Unplayable, UserError):
                continue
            tasks += 1
            with contextlib.suppress(SetupFailure, NotScored):
                await played(scenario_of(read), own)
        return tasks

    assert asyncio.run(every())


def test_the_task_itself_is_played() -> None:
    assert unplayable_reason(scenario_of_json(TASK), DesktopParams()) == ""


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"type": "googledrive", "parameters": {}}, "setup 'googledrive'"),
        ({"type": "launch", "parameters": {"command": "x", "wait": 3}}, "setup launch with 'wait'"),
        ({"type": "execute", "parameters": {"command": "echo {CLIENT_PASSWORD}"}}, "with a password"),
        ({"type": "launch", "parameters": {"command": ["x", "{A_B} {SCREEN_WIDTH}"]}}, "with the placeholder {A_B}"),
        ({"type": "upload_file", "parameters": {"files": [{"local_path": "a", "path": "/a"}]}}, "cannot be had"),
        ({"type": "download", "parameters": {"files": [{"path": "/a"}]}}, "is malformed (KeyError: 'url')"),
    ],
)
def test_what_a_step_does_not_have_is_told(step: dict[str, Any], reason: str) -> None:
    assert reason in unplayable_reason(scenario_of_json(TASK | {"config": [step]}), DesktopParams())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"result": LINE | {"command": "echo {PROXY_PORT}"}},
            "with the placeholder {PROXY_PORT}",
        ),
        ({"result": {"type": "vlc_config"}}, "getter 'vlc_config'"),
        ({"result": FILE | {"time_suffix": True}}, "getter vm_file with 'time_suffix'"),
        ({"expected": {"type": "cloud_file", "path": "https://a.b/c"}}, "a file that cannot be had"),
        ({"result": [LINE, LINE], "func": ["exact_match"]}, "1 metrics, and another number of result"),
        ({"conj": "xor"}, "conj 'xor'"),
    ],
)
def test_what_an_evaluator_asks_that_is_not_had_is_told(change: dict[str, Any], reason: str) -> None:
    asked = {"func": "exact_match", "result": LINE, "expected": RULE} | change
    assert reason in unplayable_reason(scenario_of_json(TASK | {"evaluator": asked}), DesktopParams())


def test_metrics_of_osworld_need_its_package_and_never_read_yaml(tmp_path: Path) -> None:
    asked = {"func": "compare_table", "result": FILE, "expected": RULE}
    scenario, own = scenario_of_json(TASK | {"evaluator": asked}), DesktopParams(osworld_python="python")
    assert unplayable_reason(scenario, own) == unplayable_reason(scenario, own, {"compare_table"}) == ""
    assert "'compare_table', which the desktop_env" in unplayable_reason(scenario, own, {"exact_match"})
    yaml = scenario_of_json(TASK | {"evaluator": asked | {"func": "check_json", "options": {"is_yaml": True}}})
    assert "'check_json' of YAML" in unplayable_reason(yaml, own)
    (tmp_path / "7.json").write_text(json.dumps(TASK | {"evaluator": asked}))
    with pytest.raises(
        UserError, match=r"7\.json: the metric 'compare_table' is OSWorld's; set env\.own\.osworld_python"
    ):
        import_desktop_tasks(str(tmp_path), DesktopParams(), split="train", held_out=None, limit=None, tell=None)


class Screen(GuestClient):
    """A machine with a screen of an odd width, which keeps what it is asked."""

    def __init__(self) -> None:
        super().__init__(GuestAddress(url="http://x"), longest_s=1)
        self.asked: list[tuple[str, Any]] = []

    async def _asked(self, method: str, path: str, body: Any = None, *, most: int = 0) -> bytes:
        self.asked.append((path, body))
        return json.dumps({"width": 1921, "height": 1080, "output": "x", "returncode": 0}).encode()


def test_a_screen_is_as_large_as_the_machine_says_and_asked_once() -> None:
    """Not as `env.own.width`, which is that of local machines."""
    place = "click({SCREEN_WIDTH_HALF}, {SCREEN_HEIGHT_HALF})"
    steps = [
        {"type": "execute", "parameters": {"command": "echo ${HOME} {print}", "shell": True}},
        {"type": "execute", "parameters": {"command": ["python", "-c", place]}},
        {"type": "launch", "parameters": {"command": "x {SCREEN_WIDTH}x{SCREEN_HEIGHT}", "shell": True}},
    ]
    look = LINE | {"command": ["echo", "{SCREEN_WIDTH}"]}
    asked = {"func": "exact_match", "result": look, "expected": RULE}
    scenario, client = scenario_of_json(TASK | {"config": steps, "evaluator": asked}), Screen()
    assert unplayable_reason(scenario, DesktopParams()) == ""
    asyncio.run(played(scenario, DesktopParams(), client))
    assert [path for path, _ in client.asked].count("/screen_size") == 1
    assert [body["command"] for _, body in client.asked if body] == [
        "echo ${HOME} {print}",
        ["python", "-c", "click(960, 540)"],
        "x 1921x1080",
        ["echo", "1921"],
    ]


@pytest.mark.parametrize(
    "listed", ["[]", "3", "{", '{"os": [3, {}]}', '{"os": 3}', '{"os": ["' + "y" * 300 + '"]}', "\x00"]
)
def test_a_list_of_any_shape_gives_one_clear_error(tmp_path: Path, listed: str) -> None:
    place = tmp_path / "all.json"
    place.write_text(listed)
    with pytest.raises(UserError, match=r"all\.json"):
        import_desktop_tasks(str(place), DesktopParams(), split="train", held_out=None, limit=None, tell=None)


LOOK = {"type": "vm_command_line", "command": "x"}
CHECKED = {"func": "exact_match", "result": LOOK, "expected": {"type": "rule", "rules": {"expected": "x"}}}


def osworld_folder(folder: Path, **own: Any) -> str:
    """A list of three tasks beside both folders. `own`: what task c has in `new_examples` alone, by its keys."""
    several = {
        "current_task": {"evaluator1": "Do it."},
        "task_template": {"evaluator1": "Do it.", "evaluator2": "Do the other."},
        "evaluator_list": {"evaluator1": CHECKED, "evaluator2": CHECKED},
    }
    for base, names in (("examples", "abc"), ("new_examples", "bc")):
        (folder / base / "os").mkdir(parents=True)
        for name in names:
            published = several if base == "new_examples" else {}
            task = {"id": name, "instruction": "Do it.", "config": [], "evaluator": CHECKED} | published
            if base == "new_examples" and name == "c":
                task |= own
            (folder / base / "os" / f"{name}.json").write_text(json.dumps(task))
    (folder / "train.json").write_text('{"os": ["a", "b", "c"]}')
    return str(folder / "train.json")


def imported(path: str, **changes: Any) -> tuple[dict[str, int], list[str]]:
    """By task, how many verifiers it has; and the lines that are told."""
    told: list[str] = []
    asked = {"split": "train", "held_out": None, "limit": None, "tell": told.append} | changes
    tasks = import_desktop_tasks(path, DesktopParams(), **asked)
    return {scenario_of(task).id: len(scenario_of(task).verifiers) for task in tasks}, told


def test_a_list_takes_the_published_trainers_files_first_and_says_its_counts(tmp_path: Path) -> None:
    """Only they have several verifiers for a scene; what they lack comes from OSWorld's own."""
    path = osworld_folder(tmp_path)
    found, told = imported(path)
    assert found == {"a": 1, "b": 2, "c": 2}
    counted = "3 tasks listed, 3 can be played here, 2 of them with several verifiers; 3 are for train"
    assert told == [f"{path}: {counted}"]


def test_a_published_task_that_cannot_be_played_comes_from_osworlds_own(tmp_path: Path) -> None:
    """One of them has an address that begins with hhttps."""
    files = [{"url": "hhttps://a.b/c.xlsx", "path": "/home/user/c.xlsx"}]
    path = osworld_folder(tmp_path, config=[{"type": "download", "parameters": {"files": files}}])
    found, told = imported(path)
    assert found == {"a": 1, "b": 2, "c": 1}
    assert told[0].startswith("os/c: from examples; its first file is not supported: a file that cannot be had")
    assert "3 can be played here, 1 of them with several" in told[1]


def test_the_folder_above_both_is_read_as_the_published_trainers(tmp_path: Path) -> None:
    osworld_folder(tmp_path)
    assert imported(str(tmp_path))[0] == {"b": 2, "c": 2}


def test_counts_of_a_list_that_is_not_read_to_its_end_say_so(tmp_path: Path) -> None:
    assert "3 tasks listed, the first 2 read, 2 can be played" in imported(osworld_folder(tmp_path), limit=2)[1][0]


def test_files_that_cannot_be_read_or_kept_are_missing(tmp_path: Path) -> None:
    own = DesktopParams(files=str(tmp_path))
    assert local_file("https://a.b/" + "y" * 300, own) is None
    (tmp_path / "file").write_text("x")
    with pytest.raises(ResourceMissing, match=r"env\.own\.files"):
        keep(b"x", tmp_path / "file" / "kept")
    loop = tmp_path / "loop"
    loop.symlink_to("/proc/self/mem")
    with pytest.raises(ResourceMissing, match="cannot be read"):
        asyncio.run(task_resource("https://a.b/loop", own))
