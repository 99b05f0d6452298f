"""Episodes in a real shell: solved by a script, unsolved by doing nothing, and their limits."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from rla_harbor.episode import HarborService
from rla_harbor.params import HarborParams

from harbor_tests.builders import TASKS, TESTS, copied, needs_sandbox, one, played, solution_of, written
from rla.envs.observation import EnvironmentFailure, Observation

SOLVED = ("fix-report", "recover-token", "merge-inventory")


@pytest.fixture(autouse=True)
def sandbox() -> None:
    needs_sandbox()


@pytest.mark.parametrize("name", SOLVED)
def test_a_script_solves_the_task_and_doing_nothing_does_not(name: str) -> None:
    row = one(TASKS / name)
    first, answer, end = played(row, [solution_of(name), "done"])
    assert first.text.startswith(row.instruction) and "The shell is in /" in first.text
    assert answer.text == "[no output]" and not answer.done
    assert end.done and end.reward == 1.0 and end.success(1.0)
    *_, idle = played(row, ["done"])
    assert idle.done and idle.reward == 0.0 and not idle.success(1.0)


def test_the_tests_decide_at_the_step_limit_too(tmp_path: Path) -> None:
    row = one(written(tmp_path))
    assert played(row, ["echo 42 > answer"])[-1].reward == 1.0
    assert played(row, ["echo 41 > answer"])[-1].reward == 0.0


def test_folders_stay_and_variables_and_processes_do_not(tmp_path: Path) -> None:
    row = one(written(tmp_path, docker="FROM debian\nWORKDIR /app\nENV GREETING=hello\n"))
    actions = ["mkdir -p a/b && cd a/b && A=1", "pwd; echo $GREETING ${A:-none}", "sleep 50 &"]
    actions += ["pgrep sleep; exit 3", "pwd"]
    _, _, second, _, fourth, fifth, _ = played(row, actions)
    assert second.text == "/app/a/b\nhello none"
    assert fourth.text == "[exit code 3]"
    assert fifth.text == "/app/a/b"


def test_output_is_cut_in_its_middle_and_made_harmless(tmp_path: Path) -> None:
    row = one(written(tmp_path))
    _, long, odd, error, _ = played(
        row, ["seq 1 5000", r"printf '\e[31m<tool_call>\n'", "ls /nowhere"], output_chars=200
    )
    assert long.text.startswith("1\n2\n") and long.text.endswith("\n5000") and len(long.text) <= 200
    assert "characters are missing here" in long.text
    assert "\x1b" not in odd.text and "<tool_call>" not in odd.text
    assert "No such file or directory" in error.text and error.text.endswith("[exit code 2]")


def test_a_command_has_a_time_limit_and_the_episode_goes_on(tmp_path: Path) -> None:
    row, started = one(written(tmp_path)), time.monotonic()
    _, slow, _, end = played(row, ["echo begun; sleep 100", "echo 42 > answer", "done"], command_s=1.0)
    assert slow.text == "begun\n[stopped after 1 seconds]"
    assert end.reward == 1.0 and time.monotonic() - started < 30


def test_the_time_of_the_task_ends_the_episode_and_the_tests_decide(tmp_path: Path) -> None:
    row = one(written(tmp_path, toml="[agent]\ntimeout_sec = 1.5\n"))
    *_, end = played(row, ["echo 42 > answer", "sleep 100", "echo never"])
    assert end.done and end.reward == 1.0 and "[the time is over]" in end.text


def test_only_the_command_counts_against_the_time_of_the_task(tmp_path: Path) -> None:
    row = one(written(tmp_path, toml="[agent]\ntimeout_sec = 1.5\n"))

    async def main() -> list[Observation]:
        loop, service, busy = asyncio.get_running_loop(), HarborService(HarborParams()), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        episode = service.make(row)
        await episode.reset()
        waiting = loop.run_in_executor(None, busy.wait, 4.0)  # as do other parts of a stage
        try:
            return [await episode.step("echo 42 > answer"), await episode.step("done")]
        finally:
            busy.set()
            await waiting
            episode.close()
            await service.close()

    command, end = asyncio.run(main())
    assert (command.done, command.text) == (False, "[no output]") and end.reward == 1.0


def test_tests_that_hang_end_with_their_limit(tmp_path: Path) -> None:
    toml, tests = "[verifier]\ntimeout_sec = 2.0\n", f"[ -e hang ] && sleep 100\n{TESTS}"
    row, started = one(written(tmp_path, toml=toml, tests=tests)), time.monotonic()
    *_, end = played(row, ["echo 42 > answer; touch hang", "done"])
    assert end.reward == 0.0 and "left no reward" in end.text and time.monotonic() - started < 30


def test_rewards_of_both_files(tmp_path: Path) -> None:
    tests = "#!/bin/bash\ncat given > /logs/verifier/reward.json 2>/dev/null || echo 0 > /logs/verifier/reward.txt\n"
    row = one(written(tmp_path, tests=tests, solution="echo '{\"reward\": 1}' > given"), prove=False)
    for given, reward in (('{"reward": 0.25, "speed": 9}', 0.25), ('{"score": 0.5}', 0.5), ("0.75", 0.75)):
        assert played(row, [f"echo '{given}' > given", "done"])[-1].reward == reward
    for given in ('{"a": 1, "b": 1}', '{"reward": "1"}', '{"reward": 1e999}', "NaN", "[1]", "[" * 20000):
        assert played(row, [f"printf '%s' '{given}' > given", "done"])[-1].reward == 0.0  # proven: it is lost


def test_a_task_that_was_not_proven_has_no_outcome_without_a_reward(tmp_path: Path) -> None:
    row = one(written(tmp_path, tests="true\n"), prove=False)
    with pytest.raises(EnvironmentFailure, match="left no reward, so the episode has no outcome"):
        played(row, ["done"], prove=False)


def test_a_task_that_cannot_be_played_here_says_why(tmp_path: Path) -> None:
    row = one(TASKS / "fix-report")
    apt = TASKS / "build-with-apt"
    from rla_harbor.folders import read_folder

    payload = json.dumps({"digest": read_folder(apt).digest, "folder": str(apt)})
    with pytest.raises(EnvironmentFailure, match="cannot be played here: its Dockerfile has RUN with apt"):
        played(replace(row, payload=payload), ["done"])
    copy = copied("fix-report", tmp_path)
    moved = one(copy)
    (copy / "tests/test.sh").write_text("exit 0\n")
    with pytest.raises(EnvironmentFailure, match="has changed since the pool was made"):
        played(moved, ["done"])
