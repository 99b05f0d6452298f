"""The outcome is the exit status, a number in a file, or a verifier's exit status."""

from __future__ import annotations

import sys

import pytest
from rla_gateway.gateway import Gateway

from gateway_tests.playing import BOXED, HEAD, PYTHON, READABLE, chat, config_of, play, task_of
from rla.envs.registry import environment
from rla.errors import UserError
from rla.llm.base import Request

ASK = 'ask([user("x")])\n'


def ok(request: Request, seed: int) -> list[int]:
    return [*chat().encode("ok"), chat().end_id]


@pytest.mark.parametrize(("status", "outcome"), [(0, 1), (1, -1), (200, -1)])
def test_the_exit_status(status: int, outcome: int) -> None:
    (one,) = play(f"{ASK}sys.exit({status})", ok)
    assert (one.outcome, one.reward, one.final_observation) == (outcome, None, "The program has ended.")


@pytest.mark.parametrize(
    ("written", "reward", "outcome"), [("1.0", 1.0, 1), ("0.25\\n", 0.25, -1), ("much", 0.0, -1), ("", 0.0, -1)]
)
def test_a_number_in_a_file(written: str, reward: float, outcome: int) -> None:
    source = f'{ASK}open(os.environ["AGENT_OUTCOME"], "w").write("{written}")'
    (one,) = play(source, ok, outcome="file")
    assert (one.outcome, one.reward) == (outcome, reward)


@pytest.mark.parametrize(
    "made",
    ['os.mkfifo(os.environ["AGENT_OUTCOME"])', 'os.symlink("/dev/zero", sys.argv[1])', "os.mkdir(sys.argv[1])", ""],
)
def test_a_file_that_cannot_be_read_as_a_number(made: str) -> None:
    command = [*PYTHON, "-c", f"{HEAD}\n{ASK}{made}", "{outcome}"]
    (one,) = play(command, ok, outcome="file")
    assert (one.outcome, one.reward, one.error) == (-1, 0.0, None)


@pytest.mark.parametrize("sandbox", [False, pytest.param(True, marks=BOXED)])
def test_a_verifier_judges_what_the_program_has_left(sandbox: bool) -> None:
    """It has its own copy of the task: a program cannot write another one for it. The files of a box are in memory."""
    source = (
        f'{ASK}open(os.environ["AGENT_FOLDER"] + "/answer", "w").write(os.environ["AGENT_INSTRUCTION"])'
        """
try: open(os.environ["AGENT_TASK"], "w").write('{"wanted": "b"}')
except OSError: pass  # not in a box
"""
    )
    judge = "import json, sys; sys.exit(open(sys.argv[2]).read() != json.load(open(sys.argv[1]))['wanted'])"
    tasks = [task_of(instruction="a", wanted="a"), task_of(instruction="b", wanted="a")]
    verifier = [sys.executable, "-c", judge, "{task}", "{folder}/answer"]
    boxed = {"sandbox": sandbox, "readable": READABLE}
    found = play(source, ok, tasks=tasks, outcome="verifier", verifier=verifier, **boxed)
    assert {one.instruction: one.outcome for one in found} == {"a": 1, "b": -1}


def test_a_verifier_that_hangs_is_an_error() -> None:
    wait = [sys.executable, "-c", "import time; time.sleep(60)"]
    (one,) = play(ASK, ok, outcome="verifier", verifier=wait, idle_s=2.0)
    assert one.stop_reason == "env_error" and "env.own.verifier did not end in 2 s" in str(one.error)


def test_words_of_the_command_are_replaced_once() -> None:
    said = "['do ' + chr(123) + 'task} now', '{\"a\": 1}']"
    command = [*PYTHON, "-c", f"{HEAD}{ASK}sys.exit(sys.argv[1:] != {said})", "do {instruction} now", '{"a": 1}']
    (one,) = play(command, ok, tasks=[task_of(instruction="{task}")])
    assert one.outcome == 1


@pytest.mark.parametrize(
    ("own", "key"),
    [
        ({"outcome": "verifier"}, "env.own.verifier"),
        ({"verifier": ["true"]}, "env.own.outcome"),
    ],
)
def test_parameters_that_do_not_fit_together(own: dict, key: str) -> None:
    with pytest.raises(UserError, match=key):
        config_of(["true"], **own)


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"env\.own\.command"):
        Gateway(config_of(["no-such-program"]))
    with pytest.raises(UserError, match=r"env\.own\.command"):
        environment("agent").service(config_of([]))  # type: ignore[attr-defined]
