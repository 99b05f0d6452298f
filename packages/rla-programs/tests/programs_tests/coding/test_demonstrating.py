"""What small models are warmed up on: programs and tests that are right, but for the share that is asked for."""

from __future__ import annotations

import random

import pytest
from rla_programs.coding.builtin.recall import entry_of, relatives, training_entries
from rla_programs.coding.data.problems import problem_of, task_from_problem
from rla_programs.coding.demonstrating import demonstration, known_tests, lesson_of
from rla_programs.coding.environment import Coding
from rla_programs.coding.writing import PlainTestPrompt, read_test

from programs_tests.coding.builders import stdio
from programs_tests.coding.running import answers, passes
from rla.errors import UserError
from tests.unit.builders import configured

CODING = Coding()
TASKS = CODING.tasks(
    configured("tasks.size=full", "tasks.train_scenes=30", "tasks.tasks_per_scene=1", env="coding"),
    seed=4,
    split="train",
)
PROMPT = PlainTestPrompt()


def test_a_demonstration_is_the_solution_or_a_plausible_mistake() -> None:
    for task in TASKS[:10]:
        problem = problem_of(task.payload)
        shown = demonstration(task, seed=1, random_share=0.0)
        assert shown.actions == [problem.solution] and shown.won and "0" not in shown.final_observation
        mistaken = demonstration(task, seed=1, random_share=1.0)
        (row,) = answers(problem, mistaken.actions, problem.tests)
        assert not mistaken.won and not all(map(passes, [problem] * len(row), problem.tests, row))


def test_lessons_are_tests_that_the_solution_passes() -> None:
    for task in TASKS[::6]:
        problem = problem_of(task.payload)
        lesson = lesson_of(task, PROMPT, noise=0.0, seed=7)
        tests = [test for reply in lesson.replies if (test := read_test(problem, PROMPT.parse(reply))) is not None]
        (row,) = answers(problem, [str(problem.solution)], tests)
        assert len(tests) == len(lesson.replies) > 2 and all(map(passes, [problem] * len(row), tests, row))


def test_noise_is_a_wrong_output() -> None:
    clean, noisy = (lesson_of(TASKS[0], PROMPT, noise=noise, seed=7).replies for noise in (0.0, 1.0))
    inputs = [reply.partition("->")[0] for reply in clean]
    assert inputs == [reply.partition("->")[0] for reply in noisy] and clean != noisy


def test_a_problem_of_a_data_set_teaches_its_own_tests() -> None:
    problem = stdio(("1\n", "2\n"), ("5\n", "6\n"))
    assert sorted(map(repr, known_tests(problem, random.Random(0)))) == sorted(map(repr, problem.tests))
    with pytest.raises(UserError, match=r"no reference solution.*warm_start\.enabled"):
        demonstration(task_from_problem(problem, split="train"), seed=0, random_share=0.0)


def test_every_built_in_problem_is_recalled_by_its_statement() -> None:
    entries = list(training_entries())
    found = [entry_of(entry.problem(seed=0, tests=1)) for entry in entries[::20]]
    assert found == entries[::20]
    assert entry_of(stdio(("1\n", "2\n"))) is None


def test_relatives_are_a_level_away_and_of_the_same_kind() -> None:
    for entry in list(training_entries())[::100]:
        for step in (1, -1):
            near = relatives(entry, step=step)
            assert {other.template.level for other in near} <= {entry.template.level + step}
            assert all(other.function == entry.function for other in near)


def test_tasks_sizes_are_levels() -> None:
    def levels(size: str) -> set[int | None]:
        config = configured(f"tasks.size={size}", "tasks.train_scenes=40", "tasks.tasks_per_scene=1", env="coding")
        tasks = CODING.tasks(config, seed=0, split="train")
        return {problem_of(task.payload).difficulty for task in tasks}

    assert (levels("tiny"), levels("full")) == ({1, 2}, {1, 2, 3, 4, 5})
