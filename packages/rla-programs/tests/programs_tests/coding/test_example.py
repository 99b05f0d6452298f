"""Four programs and five written tests, from replies to rewards and metrics, every number worked out by hand.

The problem: print the absolute value of n. Programs 0 and 1 are right, 2 forgets the sign, 3 has learnt an example by
heart. Of the written tests 0 tells nothing, 1 catches program 3, 2 catches both, 3 is wrong, 4 is not a test.
"""

from __future__ import annotations

from math import sqrt

import pytest
from rla_programs.coding.data.problems import StdioTest, Test
from rla_programs.coding.evaluation import agreeing, best_of, detecting, evaluate
from rla_programs.coding.prompts import PublishedProgramPrompt
from rla_programs.coding.rewards import (
    Executions,
    accuracy,
    pass_shares,
    policy_rewards,
    solved,
    standardise,
    trains,
    written_rewards,
)
from rla_programs.coding.writing import PlainTestPrompt, read_test

from programs_tests.coding.builders import stdio
from programs_tests.coding.running import answers, passes
from programs_tests.coding.test_rewards import table

PROBLEM = stdio(
    *[("0\n", "0\n"), ("3\n", "3\n"), ("-4\n", "4\n"), ("7\n", "7\n"), ("-1\n", "1\n")],
    statement="Read an integer n. Print the absolute value of n.",
)
REPLIES = [
    "```python\nprint(abs(int(input())))\n```",
    "Negate it if need be.\n```python\nn = int(input())\nprint(n if n > 0 else -n)\n```",
    "```python\nprint(input())\n```",
    "The example says 3.\n```python\nprint(3)\n```",
]
WRITTEN = ["3\n->\n3", "5\n->\n5", "-6\n->\n6", "-2\n->\n-2", "5 gives 5"]


def played() -> Executions:
    prompt = PublishedProgramPrompt()
    programs = [str(prompt.parse(reply, ())) for reply in REPLIES]
    read = [read_test(PROBLEM, PlainTestPrompt().parse(reply)) for reply in WRITTEN]
    written = [test if test is not None else StdioTest("", "") for test in read]
    return Executions(
        given=matrix(programs, PROBLEM.tests),
        written=matrix(programs, written),
        parsed=[test is not None for test in read],
        reference=matrix(programs[:1], written)[0],
    )


def matrix(programs: list[str], tests: tuple[Test, ...] | list[Test]) -> list[list[bool]]:
    rows = answers(PROBLEM, programs, tests)
    return [[passes(PROBLEM, test, answer) for test, answer in zip(tests, row, strict=True)] for row in rows]


def test_the_example_from_replies_to_metrics() -> None:
    executions = played()
    assert executions.given == table("11111 11111 11010 01000")
    assert [row[:4] for row in executions.written] == table("1110 1110 1101 1000")
    assert list(executions.parsed) == [True, True, True, True, False]

    assert pass_shares(executions) == [1.0, 1.0, 0.6, 0.2]
    assert solved(executions) == [True, True, False, False]
    assert trains(accuracy(executions), low=0.2, high=0.8)

    rewards = written_rewards(executions)
    assert rewards == [0, 1, 2, -1, -3]
    # mean -0.2, squared deviations 0.04 + 1.44 + 4.84 + 0.64 + 7.84 = 14.8 of 5
    assert standardise(rewards) == pytest.approx([x / sqrt(2.96) for x in (0.2, 1.2, 2.2, -0.8, -2.8)])

    # mean 0.7, squared deviations 0.09 + 0.09 + 0.01 + 0.25 = 0.44 of 4
    published = policy_rewards(executions, test_weight=0.0)
    assert standardise(published) == pytest.approx([x / sqrt(0.11) for x in (0.3, 0.3, -0.1, -0.5)])
    # Tests 0, 1 and 2 are valid: the programs pass 3, 3, 2 and 1 of them.
    assert policy_rewards(executions, test_weight=0.5) == pytest.approx([1.5, 1.5, 0.6 + 1 / 3, 0.2 + 1 / 6])

    assert agreeing(executions) == [True, True, True, False, False]
    assert detecting(executions) == [False, False, True, False, False]
    # Programs 0, 1 and 2 pass three of the four tests that parsed (2 thanks to the wrong one), program 3 one.
    assert best_of(executions, 4) == pytest.approx(2 / 3)
    found = {name: m.interval.estimate for name, m in evaluate({"q": executions}, k=[2], n=[4]).items() if m.interval}
    assert found == pytest.approx(
        {
            "pass@1": 0.5,
            "pass@2": 5 / 6,
            "best_of_4": 2 / 3,
            "lead_of_4": 2 / 3 - 1 / 2,
            "consensus_of_4": 1.0,  # the first two pass the same tests
            "consensus_lead_of_4": 1.0 - 1 / 2,
            "ut_accuracy": 0.6,
            "detect": 0.2,
        }
    )
