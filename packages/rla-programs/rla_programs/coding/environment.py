"""Coding as an environment: problems, programs, tests that the reward model writes, and changed problems.

An episode is one question and one program; the reward model writes tests for a task instead of judging steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rla.config import Config
from rla.envs.observation import AwaitedEnvironment
from rla.envs.protocols import Ask, Course, Demonstration, Lesson, PolicyPrompt, Proof, ProposalPrompt, RewardRule
from rla.store.records import Task
from rla_programs.coding.builtin.drawing import KINDS
from rla_programs.coding.data.problems import problem_of, question
from rla_programs.coding.demonstrating import demonstration, lesson_of, texts_of_builtin
from rla_programs.coding.params import CodingParams, check_coding, coding_params
from rla_programs.coding.probing import CodingProber, WritingPrompt
from rla_programs.coding.prompts import PlainProgramPrompt, PublishedProgramPrompt
from rla_programs.coding.running import Runner
from rla_programs.coding.service import CodingService, LoneExamination
from rla_programs.coding.tasks import builtin_problems, imported_problems
from rla_programs.coding.writing import PlainTestPrompt, PublishedTestPrompt

LEVELS = {"tiny": (1, 2), "small": (1, 2, 3), "medium": (1, 2, 3, 4), "full": (1, 2, 3, 4, 5)}


class Coding:
    """The policy writes programs, the reward model writes tests for them."""

    name = "coding"
    Params = CodingParams
    exact_text = True

    @property
    def edit_fields(self) -> frozenset[str]:
        from rla_programs.coding.editing import edit_schema

        return frozenset(edit_schema()["properties"])

    def check(self, config: Config) -> None:
        check_coding(config)

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        """Built-in problems; fewer than requested if there are no more."""
        return builtin_problems(
            seed=seed,
            count=config.tasks.count(split),
            split=split,
            held_out=config.tasks.held_out(split),
            tests=coding_params(config).tests,
            levels=LEVELS[config.tasks.size],
            kinds=config.tasks.kinds_of(split) or KINDS,
        )

    def make(self, task: Task, config: Config) -> AwaitedEnvironment:
        """An episode with its own sandbox; the episodes of a stage share one (`service`)."""
        return LoneExamination(problem_of(task.payload), coding_params(config).execution)

    def service(self, config: Config) -> CodingService:
        return CodingService(Runner(coding_params(config).execution))

    def spreads(self, config: Config) -> bool:
        return coding_params(config).execution.on_this_machine

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        return PublishedProgramPrompt() if coding_params(config).prompt == "published" else PlainProgramPrompt()

    def import_tasks(self, config: Config, *, split: str, tell: Callable[[str], None] | None = None) -> list[Task]:
        own = coding_params(config)
        return imported_problems(
            (own.test_path if config.tasks.held_out(split) else "") or str(config.tasks.path),
            split=split,
            layout=own.layout or None,
            limit=config.tasks.limit,
            max_tests=own.max_tests,
            max_test_chars=own.max_test_chars,
            tell=tell,
        )

    def prober(self, config: Config) -> CodingProber:
        return CodingProber(_writing_prompt(config), Runner(coding_params(config).execution))

    def reward_rule(self) -> RewardRule:
        from rla_programs.coding.crediting import CodingRule

        return CodingRule()

    def demonstrate(self, task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
        return demonstration(task, seed=seed, random_share=random_share)

    def lesson(self, task: Task, config: Config, *, seed: int) -> Lesson:
        return lesson_of(task, _writing_prompt(config), noise=config.warm_start.reward.noise, seed=seed)

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterator[str]:
        """Texts that a small model may read and write: the built-in training problems, and the problems of the pool."""
        policy, tests = self.policy_prompt(config), _writing_prompt(config)
        yield from texts_of_builtin(policy, tests, seed=config.seed)
        for task in tasks:
            problem = problem_of(task.payload)
            yield question(problem)
            yield from ([policy.render(problem.solution, ())] if problem.solution else [])
            yield from (tests.render(test) for test in problem.tests)

    def tokenizer_phrases(self, config: Config) -> Sequence[str]:
        return ()

    def course(self, task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
        from rla_programs.coding.rewriting import program_course

        return program_course(episodes)

    def propose(self, task: Task, *, direction: str, focus: str = "", seed: int, count: int) -> list[str]:
        from rla_programs.coding.editing import drawn_edits

        return drawn_edits(task, direction=direction, seed=seed, count=count)

    def proposal_prompt(self) -> ProposalPrompt:
        from rla_programs.coding.rewriting import RewritePrompt

        return RewritePrompt()

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        from rla_programs.coding.editing import child_of

        return child_of(task, edit, taken={*taken, self.likeness(task), self.likeness(root)}, created=created)

    def likeness(self, task: Task) -> str:
        from rla_programs.coding.editing import problem_likeness

        return problem_likeness(task)

    def proof(self, config: Config, ask: Ask | None) -> Proof:
        from rla_programs.coding.proving import CodingProof

        own = coding_params(config)
        return CodingProof(Runner(own.execution), own, prompt=self.policy_prompt(config), ask=ask)


def _writing_prompt(config: Config) -> WritingPrompt:
    """The prompt that asks the reward model for tests, chosen by `judge.prompt`."""
    return PublishedTestPrompt() if config.judge.prompt == "published" else PlainTestPrompt()
