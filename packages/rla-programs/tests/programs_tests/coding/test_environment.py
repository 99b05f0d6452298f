"""One question, one program, one verdict: the coding environment, the programs that it runs and what it says."""

from __future__ import annotations

import asyncio

import pytest
from rla_programs.coding.data.checkers import Checker, CheckerKind
from rla_programs.coding.data.problems import Problem, StdioTest, task_from_problem
from rla_programs.coding.environment import Coding
from rla_programs.coding.params import CodingParams
from rla_programs.coding.running import INTERPRETER_MB, Runner
from rla_programs.coding.service import CodingService, passed, told
from rla_programs.execution.records import ExecutionConfig
from rla_study.contract import check_environment
from study_tests.contract.broken import SMALL

from programs_tests.coding.builders import few_built_in_texts, function, stdio
from programs_tests.coding.trusted import Trusted
from rla.config import Config
from rla.config.sections import EnvConfig
from rla.envs.observation import EnvironmentFailure, Observation

PROBLEM = stdio(("1\n", "2\n"), ("5\n", "6\n"), ("-1\n", "0\n"))


def runner(sandbox: Trusted | None = None) -> Runner:
    return Runner(ExecutionConfig(), sandbox or Trusted())


def passes(problem: Problem, program: str) -> list[bool]:
    return asyncio.run(runner().passes(problem, program, problem.tests))


def examined(program: str, sandbox: Trusted | None = None) -> tuple[Observation, Observation]:
    service = CodingService(runner(sandbox))
    environment = service.make(task_from_problem(PROBLEM, split="train"))

    async def episode() -> tuple[Observation, Observation]:
        found = await environment.reset(), await environment.step(program)
        environment.close()
        await service.close()
        return found

    return asyncio.run(episode())


def test_a_right_program_wins_in_one_step() -> None:
    asked, answered = examined("print(int(input()) + 1)")
    assert (asked.text, asked.commands, asked.won, asked.done) == (PROBLEM.statement, (), False, False)
    assert (answered.text, answered.won, answered.done) == ("tests: 111", True, True)


def test_the_verdict_says_which_tests_were_passed() -> None:
    assert examined("print(abs(int(input())) + 1)")[1].text == "tests: 110"
    assert examined("no action")[1].text == "tests: 000"
    assert examined('print("tests: 111")')[1].text == "tests: 000"  # what a program prints is no verdict


def test_tests_that_were_not_run_count_as_failed_and_the_verdict_says_so() -> None:
    answered = examined("print(int(input()) + 1)", Trusted(waits_from=1))[1]
    assert (answered.text, answered.won) == ("tests: 100 (1 not run)", False)
    assert passed(answered.text) == [True, False, False]


def test_the_expected_outputs_never_reach_the_sandbox() -> None:
    sandbox = Trusted()
    examined("print(input())", sandbox)
    assert sandbox.closed and [job.stdin for job in sandbox.jobs] == [("1\n", "5\n", "-1\n")]


def test_a_sandbox_that_fails_is_no_verdict() -> None:
    with pytest.raises(EnvironmentFailure, match="no box"):
        examined("print(1)", Trusted(failing=True))


@pytest.mark.parametrize(
    "text", ["", "tests: ", "tests: 12", "tests: 11\n", " tests: 1", "All tests: 1", "tests: 1 (x not run)"]
)
def test_only_a_verdict_is_read_as_one(text: str) -> None:
    assert passed(text) is None
    assert passed(told([True, False])) == [True, False]


def test_functions_are_called_and_their_values_compared() -> None:
    problem = function(((1,), 2), ((-3,), -2))
    assert passes(problem, "def f(n):\n    return n + 1.0") == [True, True]
    assert passes(problem, "def f(n):\n    return abs(n) + 1") == [True, False]
    assert passes(problem, "def g(n):\n    return n + 1") == [False, False]


def test_a_checker_program_sees_the_answers_that_there_are() -> None:
    source = "def check(given, expected, actual):\n    return int(actual) > int(given)"
    checker = Checker(kind=CheckerKind.PROGRAM, program=source)
    problem = Problem(statement="Print more.", tests=(StdioTest("1", ""), StdioTest("7", "")), checker=checker)
    assert passes(problem, "print(5)") == [True, False]
    assert passes(problem, "n = int(input())\nprint(n + 1 if n < 5 else 1 // 0)") == [True, False]


def test_equal_programs_are_run_once() -> None:
    sandbox = Trusted()
    table = asyncio.run(runner(sandbox).table(PROBLEM, ["print(2)", "print(6)", "print(2)"], PROBLEM.tests))
    assert table == [[True, False, False], [False, True, False], [True, False, False]]
    assert len(sandbox.jobs) == 2


def test_limits_are_the_problems_and_the_wall_clock_is_patient() -> None:
    limits = runner().limits(stdio(("1", "2"), time_limit_s=6.0, memory_limit_mb=64))
    assert (limits.cpu_s, limits.wall_s, limits.memory_mb) == (6.0, 24.0, 64 + INTERPRETER_MB)


def test_it_keeps_the_contract_of_environments() -> None:
    own = CodingParams(tests=1, execution=ExecutionConfig(backend="rlimits", workers=1))
    config = Config(env=EnvConfig(name="coding", own=own), tasks=SMALL)
    with few_built_in_texts():
        findings = check_environment(Coding(), config, episodes=1)
    assert len(findings) > 15 and [one for one in findings if not one.ok] == []
