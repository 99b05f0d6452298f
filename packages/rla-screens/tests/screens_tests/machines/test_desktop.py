"""Real machines: what their walls keep in, what is left behind, and scripts in the light applications."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from rla_programs.execution.interpreter import base_interpreter
from rla_screens.desktop.client import GuestClient, GuestRefusal
from rla_screens.desktop.episode import DesktopService
from rla_screens.desktop.leases import leases_folder
from rla_screens.desktop.local import LocalDesktop, walls_of
from rla_screens.desktop.machine_pool import MachinePool
from rla_screens.desktop.params import DesktopParams, DesktopSuccess
from rla_screens.desktop.playing import on_machines, play_script
from rla_screens.desktop.proving import DesktopProof, ScriptRun, script_runs
from rla_screens.desktop.scenarios import Scenario, scenario_of_json, task_of_scenario
from rla_screens.desktop.scripts import labels_by_replay
from rla_screens.desktop.tasks import asked_otherwise, own_scenarios

from rla.envs.observation import EnvironmentFailure
from rla.errors import UserError
from screens_tests.machines.places import needs_desktop
from tests.seeing import noise_png

pytestmark = needs_desktop
OWN = DesktopParams(machines=2)
SMALL = replace(OWN, width=640, height=480)


@pytest.fixture(scope="module", autouse=True)
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Leases of these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        place = str(tmp_path_factory.mktemp("leases"))
        patch.setattr("tempfile.gettempdir", lambda: place)
        yield


def on_a_machine(work: Callable[[GuestClient], Coroutine[Any, Any, Any]]) -> Any:
    async def worked() -> Any:
        machine = LocalDesktop(SMALL, walls_of(SMALL))
        await machine.start()
        client = GuestClient(machine.address, longest_s=60)
        try:
            await client.greet()
            return await work(client)
        finally:
            await client.close()
            await machine.stop()

    return asyncio.run(worked())


def scene(name: str) -> Scenario:
    return next(one for one in own_scenarios() if one.id == name)


def runs_of(*names: str) -> list[ScriptRun]:
    async def found(service: DesktopService) -> list[ScriptRun]:
        return [run for name in names for run in [one async for one in script_runs(service, scene(name))]]

    return on_machines(OWN, found)


def test_programs_on_a_machine_reach_nothing_of_the_host() -> None:
    looked = (
        "ls / /home; ls /etc/shadow 2>/dev/null; id -u; grep CapEff /proc/1/status; ls -a /sys 2>&1; "
        "touch /proc/sys/kernel/x 2>&1"
    )
    tried = (
        "import socket\n"
        "try:\n    socket.create_connection(('1.1.1.1', 53), 2); print('reached')\n"
        "except OSError as error:\n    print('refused')\n"
        "for path in ('/etc/x', '/usr/x', '/box/x', '/x'):\n"
        "    try:\n        open(path, 'w'); print('wrote', path)\n"
        "    except OSError:\n        pass\n"
        "import ctypes; print('unshare', ctypes.CDLL(None).unshare(0x10000000))\n"
        f"import os; print('packages', [os.listdir(path) for path in {base_interpreter().hidden!r}])\n"
    )

    async def work(client: GuestClient) -> tuple[str, str]:
        return (await client.execute(looked, shell=True))["output"], (await client.execute(["python", "-c", tried]))[
            "output"
        ]

    seen, said = on_a_machine(work)
    assert "sys" not in seen.split() and "/etc/shadow" not in seen.split() and "CapEff:\t0000000000000000" in seen
    nothing: list[list[str]] = [[] for _ in base_interpreter().hidden]
    assert said == f"refused\nunshare -1\npackages {nothing}\n"


SPYING = """
import os, sys
found = []
for name in set(filter(str.isdecimal, os.listdir("/proc"))) - {str(os.getpid())}:
    command = open(f"/proc/{name}/cmdline", "rb").read()
    for part, mode in (("environ", "rb"), ("mem", "r+b"), ("maps", "rb")):
        try:
            data = open(f"/proc/{name}/{part}", mode).read(0 if part == "mem" else 1 << 16)
        except OSError:
            continue
        if b"desktop.guest" in command or sys.argv[1].encode() in data + command:
            found.append((part, command))
print(found)
"""


def test_a_program_cannot_read_the_token_nor_reach_into_the_server() -> None:
    async def work(client: GuestClient) -> tuple[str, str]:
        spying = ["python3", "-c", SPYING, client._address.token]
        limits = "cat /proc/self/oom_score_adj; ulimit -d; ulimit -f"
        return (await client.execute(spying))["output"], (await client.execute(limits, shell=True))["output"]

    spied, bounds = on_a_machine(work)
    assert spied == "[]\n"
    assert bounds.split() == ["1000", str(SMALL.memory_mb << 10), str(SMALL.disk_mb << 11)]


def test_a_file_that_never_ends_is_not_there_and_a_home_speaks_for_no_verifier() -> None:
    prepared = (
        "cd; ln -s /dev/zero zero; truncate -s 300M sparse; mkfifo pipe; echo 'print(\"forged\")' > json.py; "
        "d=.local/lib/python3.$(python3 -c 'import sys; print(sys.version_info[1])')/site-packages; mkdir -p $d; "
        "echo 'print(\"forged\")' > $d/usercustomize.py"
    )

    async def work(client: GuestClient) -> Any:
        assert (await client.execute(prepared, shell=True))["error"] == ""
        files = [await client.file(f"~/{name}") for name in ("zero", "sparse", "pipe", "json.py")]
        told = await client.execute(["python3", "-c", "import json; print(json.dumps(True))"])
        return files, told["output"], (await client.execute("python3 -c 'import json'", shell=True))["output"]

    files, told, by_shell = on_a_machine(work)
    assert files == [None, None, None, b'print("forged")\n'] and (told, by_shell) == ("true\n", "")


def test_the_endpoints_of_osworld_answer_as_theirs_and_only_with_the_token() -> None:
    async def work(client: GuestClient) -> None:
        await client.upload("/home/user/Documents/a.txt", b"hi")
        assert await client.file("~/Documents/a.txt") == b"hi" and await client.file("/home/user/none") is None
        assert await client.screen_size() == (640, 480)
        await client.do([{"motion": "move", "at": [30, 40]}])
        assert await client.text("/cursor_position") == [30, 40]
        moved = "import pyautogui; import time; pyautogui.FAILSAFE = False; pyautogui.moveTo(50, 60)"
        assert (await client.execute(["python", "-c", moved]))["returncode"] == 0
        assert await client.text("/cursor_position") == [50, 60]
        tree = await client.tree("/home/user/Documents")
        assert tree["children"] == [{"type": "file", "name": "a.txt"}]
        assert await client.text("/terminal") == {"output": None, "status": "success"}
        for refused in (
            client.to_window("activate", "no such window"),
            client.open_file("/no/such"),
            client.text("/x"),
        ):
            with pytest.raises(GuestRefusal):
                await refused
        with pytest.raises(GuestRefusal, match="401"):
            await GuestClient(replace(client._address, token="wrong"), longest_s=5).greet()
        connector = aiohttp.UnixConnector(path=client._address.socket)
        async with aiohttp.ClientSession(connector=connector) as session, session.get("http://x/screenshot") as answer:
            assert answer.status == 401

    on_a_machine(work)


def test_a_text_of_any_characters_arrives_as_it_was_typed() -> None:
    text = "Größe <b> {1}~ \\ 'x' \"y\" €\tå\n"

    async def work(client: GuestClient) -> bytes | None:
        await client.upload("/home/user/a.txt", b"")
        await client.open_file("/home/user/a.txt")
        await client.do([{"motion": "type", "text": text}, {"motion": "press", "keys": ["Control", "s"]}])
        await client.screenshot(still_ms=1500)
        await asyncio.sleep(0.5)
        return await client.file("/home/user/a.txt")

    assert on_a_machine(work) == text.encode()


@pytest.mark.slow
def test_scripts_win_and_wrong_ends_do_not() -> None:
    assert [run for run in runs_of("text-append", "files-rename") if not run.sound] == []


@pytest.mark.slow
def test_a_task_that_cannot_be_done_is_won_by_saying_so() -> None:
    assert [run for run in runs_of("text-infeasible") if not run.sound] == []


@pytest.mark.parametrize("success", ["positive", "score"])
def test_the_last_step_is_scored_as_it_leaves_the_screen(success: DesktopSuccess) -> None:
    asked = scene("text-append")
    task = task_of_scenario(asked, split="train")
    own, script = replace(OWN, success=success), asked.solution[:-1]
    played = on_machines(own, lambda service: play_script(service, task, script, threshold=1.0))
    assert played.won and not played.seen[-2].done


@pytest.mark.slow
def test_a_changed_task_is_proven_by_its_script_and_by_nothing_not_winning() -> None:
    easy = {
        "func": "exact_match",
        "result": {"type": "rule", "rules": 1},
        "expected": {"type": "rule", "rules": {"expected": 1}},
    }
    asked = asked_otherwise(scene("text-append"), "evaluator3")
    won = replace(asked, verifiers={**asked.verifiers, "evaluator3": easy})
    lost = replace(asked, solutions={"evaluator3": ("noop(10)",)})

    async def proven() -> list[str]:
        proof = DesktopProof(replace(OWN, success="score"), max_steps=10, threshold=1.0)
        try:
            return [await proof(task_of_scenario(one, split="train")) for one in (asked, won, lost)]
        finally:
            await proof.close()

    assert asyncio.run(proven()) == ["", "it is won by doing nothing", "its script does not win it"]


@pytest.mark.slow
def test_labels_by_replay_tell_help_from_waste_and_from_harm() -> None:
    asked = scene("text-append")
    task = task_of_scenario(asked, split="train")
    end, typed, save, done = asked.solution
    actions = [end, "noop(50)", 'keyboard_type("x")', typed, save, done]

    async def labelled(service: DesktopService) -> list[int]:
        found = await labels_by_replay(service, task, actions, others=0, threshold=1.0)
        return [each[0].score for each in found]

    assert on_machines(replace(OWN, success="score"), labelled) == [1, -1, -1, 1, 1, 1]


@pytest.mark.parametrize(
    ("func", "look", "raised", "said"),
    [
        ("exact_match", "vlc_config", EnvironmentFailure, "cannot be played here: getter 'vlc_config'"),
        ("compare_pptx", "vm_file", UserError, r"'compare_pptx' is OSWorld's; set env\.own\.osworld_python"),
    ],
)
def test_what_cannot_be_scored_is_no_loss(func: str, look: str, raised: type[Exception], said: str) -> None:
    asked = {"func": func, "result": {"type": look, "path": "/x"}}
    task = task_of_scenario(scenario_of_json({"id": "x", "instruction": "Do it.", "evaluator": asked}), split="train")
    with pytest.raises(raised, match=said):
        on_machines(OWN, lambda service: play_script(service, task, ["done()"], threshold=1.0))


def test_a_machine_that_is_killed_ends_its_episode_with_a_reason() -> None:
    task = task_of_scenario(scene("text-append"), split="train")

    async def work(service: DesktopService) -> str:
        episode = service.make(task)
        await episode.reset()
        machine = episode._machine
        assert isinstance(machine, LocalDesktop)
        os.kill(machine._first, signal.SIGKILL)
        with pytest.raises(EnvironmentFailure) as failure:
            await episode.step("mouse_click(1, 1)")
        return str(failure.value)

    assert "the machine did not answer" in on_machines(OWN, work)
    assert list(leases_folder().iterdir()) == []


HOLDER = """
import asyncio, sys, tempfile
tempfile.gettempdir = lambda: sys.argv[1]
from rla_screens.desktop.machine_pool import MachinePool
from rla_screens.desktop.params import DesktopParams

async def main():
    machine = await MachinePool(DesktopParams(machines=1)).take()
    print(machine._first, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_nothing_is_left_of_a_process_that_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)  # longer than the path of a socket may be
    folder.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    first = int(holder.stdout.readline())
    holder.kill()
    holder.wait()
    until = time.monotonic() + 20
    while Path(f"/proc/{first}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not Path(f"/proc/{first}").exists()
    (left,) = folder.glob("rla-desktops-*/*")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.gettempdir", lambda: str(folder))

        async def swept() -> None:
            pool = MachinePool(OWN)
            await pool.give(await pool.take())

        asyncio.run(swept())
    assert not left.exists()


@pytest.mark.slow
@pytest.mark.parametrize("domain", ["files", "text", "preferences"])
def test_every_light_task_is_sound(domain: str) -> None:
    names = [one.id for one in own_scenarios() if one.domain == domain]
    assert [run for run in runs_of(*names) if not run.sound] == []


THEIRS = """
import base64, json
PNG = base64.b64decode("{png}")

def app(space, start):
    if space["PATH_INFO"] == "/screenshot":
        start("200 OK", [("Content-Type", "image/png"), ("Content-Length", str(len(PNG)))])
        return [PNG]
    size = int(space.get("CONTENT_LENGTH") or 0)
    asked = json.loads(space["wsgi.input"].read(size) or b"null")
    data = json.dumps({{"path": space["PATH_INFO"], "asked": asked}}).encode()
    found = "404 Not Found" if space["PATH_INFO"].startswith("/rla") else "200 OK"
    start(found, [("Content-Type", "application/json"), ("Content-Length", str(len(data)))])
    return [data]
"""


def test_a_server_of_a_checkout_of_osworld_serves_behind_our_token_by_the_plain_protocol(tmp_path: Path) -> None:
    """A stand-in for OSWorld's `app`; deeds reach it as programs of pyautogui."""
    png = base64.b64encode(noise_png("theirs", side=4)).decode()
    place = tmp_path / "desktop_env/server"
    place.mkdir(parents=True)
    (place / "main.py").write_text(THEIRS.format(png=png))
    tmp_path.chmod(0o755)  # the user of a machine owns nothing here
    own = replace(SMALL, osworld=str(tmp_path), guest_python=sys.executable)

    async def work() -> dict[str, Any]:
        machine = LocalDesktop(own, walls_of(own))
        await machine.start()
        client = GuestClient(machine.address, longest_s=60)
        try:
            await client.greet()
            assert not client.ours and await client.screenshot(still_ms=700) == base64.b64decode(png)
            with pytest.raises(GuestRefusal, match="401"):
                await GuestClient(replace(machine.address, token="x"), longest_s=5).greet()
            return await client.execute(["python", "-c", "1"])
        finally:
            await client.close()
            await machine.stop()

    assert asyncio.run(work())["asked"] == {"command": ["python", "-c", "1"], "shell": False}
