"""Coding as the stages see it: problems, programs, tests that the reward model writes, and changed problems.

An episode is one question and one program; the reward model writes tests for a task instead of judging steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.config.sections import EnvConfig, TasksConfig
from rla.envs.coding.builtin.drawing import KINDS
from rla.envs.coding.demonstrating import demonstration, lesson_of, texts_of_builtin
from rla.envs.coding.probing import CodingProber, WritingPrompt
from rla.envs.coding.problems import problem_of, question
from rla.envs.coding.prompts import PlainProgramPrompt, PublishedProgramPrompt
from rla.envs.coding.running import Runner
from rla.envs.coding.service import CodingService
from rla.envs.coding.tasks import builtin_tasks, import_tasks
from rla.envs.coding.writing import PlainTestPrompt, PublishedTestPrompt
from rla.envs.course import Course
from rla.envs.defaults import StepByStep
from rla.envs.observation import Environment
from rla.envs.protocols import (
    Ask,
    Demonstration,
    JudgePrompt,
    Labelled,
    Lesson,
    PolicyPrompt,
    Proof,
    ProposalPrompt,
    RewardRule,
)
from rla.errors import UserError
from rla.store.records import Task

LEVELS = {"tiny": (1, 2), "small": (1, 2, 3), "medium": (1, 2, 3, 4), "full": (1, 2, 3, 4, 5)}


class CodingSetting(StepByStep):
    """The policy writes programs, the reward model writes tests for them."""

    name = "coding"
    has_expert = False  # a reference solution says nothing about how hard a problem is
    own_proof = True
    exact_text = True

    def make(self, task: Task, config: EnvConfig) -> Environment:
        raise UserError("env.name: coding has no environments for the pool; set pool.mode: auto")

    def slow(self, config: EnvConfig) -> bool:
        return False

    def warm(self, config: EnvConfig) -> None:
        """There is nothing to import."""

    def service(self, config: EnvConfig) -> CodingService:
        return CodingService(config)

    def make_tasks(self, config: TasksConfig, *, seed: int, split: str, env: EnvConfig | None = None) -> list[Task]:
        """Built-in problems; fewer than asked for where there are no more."""
        held_out = split == config.test_split
        scenes = config.test_scenes if held_out else config.train_scenes
        return builtin_tasks(
            seed=seed,
            count=scenes * config.tasks_per_scene,
            split=split,
            held_out=held_out,
            tests=(env or EnvConfig()).coding.tests,
            levels=LEVELS[config.size],
            kinds=config.kinds or KINDS,
        )

    def import_tasks(
        self,
        folder: Path,
        *,
        split: str,
        limit: int | None,
        env: EnvConfig | None = None,
        held_out: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> list[Task]:
        own = (env or EnvConfig()).coding
        return import_tasks(
            (own.test_path if held_out else "") or str(folder),
            split=split,
            layout=own.layout or None,
            limit=limit,
            max_tests=own.max_tests,
            max_test_chars=own.max_test_chars,
            tell=tell,
        )

    def export_tasks(self, tasks: Sequence[Task], folder: Path) -> int:
        raise UserError("--export writes games of ALFWorld; a coding problem is the payload of its task row")

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        return PublishedProgramPrompt() if config.env.coding.prompt == "published" else PlainProgramPrompt()

    def judge_prompt(self, config: Config) -> JudgePrompt:
        raise UserError("env.name: coding has no judge of steps: its reward model writes tests")

    def test_prompt(self, config: Config) -> WritingPrompt:
        return PublishedTestPrompt() if config.judge.prompt == "published" else PlainTestPrompt()

    def prober(self, config: Config) -> CodingProber:
        return CodingProber(self.test_prompt(config), Runner(config.env.execution))

    def reward_rule(self) -> RewardRule:
        from rla.envs.coding.crediting import CodingRule

        return CodingRule()

    def demonstrate(self, task: Task, config: EnvConfig, *, seed: int, random_share: float) -> Demonstration:
        return demonstration(task, seed=seed, random_share=random_share)

    def lesson(self, task: Task, config: Config, *, seed: int) -> Lesson:
        return lesson_of(task, self.test_prompt(config), noise=config.warm_start.reward.noise, seed=seed)

    def label(
        self, task: Task, config: EnvConfig, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        return []

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterator[str]:
        """What a small model may read and write: the built-in problems of training, and those of the pool."""
        policy, tests = self.policy_prompt(config), self.test_prompt(config)
        yield from texts_of_builtin(policy, tests, seed=config.seed)
        for task in tasks:
            problem = problem_of(task.payload)
            yield question(problem)
            yield from ([policy.render(problem.solution, ())] if problem.solution else [])
            yield from (tests.render(test) for test in problem.tests)

    def tokenizer_phrases(self, config: Config) -> Sequence[str]:
        return ()

    def course(self, task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
        from rla.envs.coding.rewriting import course_of

        return course_of(episodes)

    def propose(
        self, task: Task, *, direction: str, critique: str, focus: str = "", seed: int, count: int
    ) -> list[str]:
        from rla.envs.coding.editing import drawn_edits

        return drawn_edits(task, direction=direction, seed=seed, count=count)

    def proposal_prompt(self) -> ProposalPrompt:
        from rla.envs.coding.rewriting import RewritePrompt

        return RewritePrompt()

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        from rla.envs.coding.editing import child_of

        return child_of(task, edit, taken={*taken, self.likeness(task), self.likeness(root)}, created=created)

    def likeness(self, task: Task) -> str:
        from rla.envs.coding.editing import likeness

        return likeness(task)

    def solution(self, task: Task, config: EnvConfig) -> list[str]:
        found = problem_of(task.payload).solution
        return [] if found is None else [found]

    def second_engine(self, config: EnvConfig) -> EnvConfig | None:
        return None

    def proof(self, config: Config, ask: Ask | None) -> Proof:
        from rla.envs.coding.proving import CodingProof

        runner = Runner(config.env.execution)
        return CodingProof(runner, config.env.coding, prompt=self.policy_prompt(config), ask=ask)
