"""Warm-up data for small models: solutions for the policy, and tests with right outputs for the reward model.

    policy         the solution, or with probability `random_share` a plausible wrong program of the same template
    reward model   newly drawn tests of a built-in problem's template, two of them on inputs that are easily worked out
                   by hand; for another problem its given tests. With probability `noise` the output is taken from
                   another of these tests.

The templates' own functions compute the expected outputs. Nothing is executed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rla.envs.protocols import Demonstration, Lesson, PolicyPrompt
from rla.errors import UserError
from rla.seeds import derive
from rla.store.records import Task
from rla_programs.coding.builtin.recall import entry_of, training_entries
from rla_programs.coding.data.problems import CallTest, Problem, StdioTest, Test, problem_of, question
from rla_programs.coding.probing import WritingPrompt
from rla_programs.coding.service import told

TESTS = 6  # tests of a problem in one lesson
SHOWN = 4  # tests of a problem that count for the vocabulary


def demonstration(task: Task, *, seed: int, random_share: float) -> Demonstration:
    """One question and one program. Raises UserError for a problem without a solution."""
    problem = problem_of(task.payload)
    if problem.solution is None:
        raise UserError(
            f"task {task.task_id} has no reference solution to learn from; set warm_start.enabled: false, or import "
            "tasks that have solutions"
        )
    rng = random.Random(seed)
    entry = entry_of(problem)
    wrong = entry.wrong() if entry is not None and rng.random() < random_share else []
    program = rng.choice(wrong) if wrong else problem.solution
    return Demonstration(
        observations=[question(problem)],
        commands=[()],
        actions=[program],
        final_observation=told([not wrong] * len(problem.tests)),
        won=not wrong,
    )


def lesson_of(task: Task, prompt: WritingPrompt, *, noise: float, seed: int) -> Lesson:
    """Tests of one problem as replies to one prompt."""
    problem, rng = problem_of(task.payload), random.Random(derive(seed, "lesson", task.task_id))
    tests = known_tests(problem, rng)
    outputs = [rng.choice(tests) if rng.random() < noise else test for test in tests]
    shown = [_with_output(test, other) for test, other in zip(tests, outputs, strict=True)]
    return Lesson(messages=prompt.messages(problem), replies=[prompt.render(test) for test in shown])


def known_tests(problem: Problem, rng: random.Random) -> list[Test]:
    """Tests that are right."""
    entry = entry_of(problem)
    if entry is None:
        return rng.sample(problem.tests, min(TESTS, len(problem.tests)))
    return entry.drawn(rng, count=TESTS)


def _with_output(test: Test, other: Test) -> Test:
    """`test` with the output of `other`."""
    if isinstance(test, StdioTest) and isinstance(other, StdioTest):
        return replace(test, output=other.output)
    if isinstance(test, CallTest) and isinstance(other, CallTest):
        return replace(test, expected=other.expected)
    return test


def texts_of_builtin(policy: PolicyPrompt, tests: WritingPrompt, *, seed: int) -> Iterator[str]:
    """Everything that is read and written about the built-in training problems."""
    for entry in training_entries():
        problem = entry.problem(seed=seed, tests=SHOWN)
        yield from _contents(policy.opening(question(problem), ()))
        yield from _contents(tests.messages(problem))
        yield policy.render(str(problem.solution), ())
        yield from (tests.render(test) for test in problem.tests)


def _contents(messages: Sequence[dict[str, str]]) -> Iterator[str]:
    yield from (message["content"] for message in messages)
