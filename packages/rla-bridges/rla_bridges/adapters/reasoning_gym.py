"""The families of reasoning-gym: `--env reasoning-gym:chain_sum`. An episode is one question and one answer.

The package makes and verifies the questions offline. The levels of a family's attributes make tasks harder or easier.
See `docs/guide/reasoning-gym.md`.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rla.config import Config
from rla.envs.authoring import course_of_one_phase
from rla.envs.chat_prompts import judge_prompt, policy_prompt, single_spaced
from rla.envs.observation import Environment, Observation
from rla.envs.protocols import Course, Demonstration, JudgePrompt, Labelled, PolicyPrompt, ProposalPrompt
from rla.errors import UserError
from rla.store.records import Task
from rla_bridges.adapters.reasoning_families import SLOW, WITHOUT_ANSWER, NoItem, opened_family
from rla_bridges.adapters.reasoning_items import (
    NAME,
    Item,
    answer_score,
    drawn_items,
    entry_of_task,
    item_of,
    known_answer,
    made_entry,
    task_of_item,
)
from rla_bridges.adapters.reasoning_levels import (
    FIELDS,
    LevelPrompt,
    child_of_item,
    drawn_level_edits,
    item_likeness,
)
from rla_bridges.adapters.reasoning_params import (
    ReasoningGymParams,
    check_reasoning,
    levels_of,
    named_values,
    reasoning_params,
)

RULES = "Answer the question. Your action is the answer alone, in the form that the question asks for."
AGENT = "an agent that answers a question"
ANSWERED = "The answer has been taken."  # does not say whether it is right, because judges read this
WRONG = "unknown"
NEIGHBOURS = 8  # items that are tried for a wrong answer to this one


@dataclass(frozen=True, slots=True)
class OneQuestion:
    """An `Environment`: the question, then the end."""

    item: Item
    question: str

    def reset(self) -> Observation:
        return Observation(text=self.question)

    def step(self, action: str) -> Observation:
        return Observation(text=ANSWERED, done=True, reward=answer_score(self.item, action))

    def close(self) -> None:
        """Nothing to release."""


class ReasoningGym:
    """One family of reasoning-gym."""

    name = NAME
    Params = ReasoningGymParams
    edit_fields = frozenset(FIELDS)

    def check(self, config: Config) -> None:
        check_reasoning(config)

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        """Fewer tasks than requested if the family has no more questions of these levels."""
        own = reasoning_params(config)
        family = opened_family(own.id)
        held_out, count = config.tasks.held_out(split), config.tasks.count(split)
        levels, values = levels_of(own, family), named_values(own)
        items = drawn_items(own.id, levels, values, count=count, held_out=held_out, seed=seed)
        return [task_of_item(item, split=split) for item in items]

    def make(self, task: Task, config: Config) -> Environment:
        return OneQuestion(item_of(task), entry_of_task(task)["question"])

    def slow(self, config: Config) -> bool:
        return reasoning_params(config).id in SLOW

    def warm(self, config: Config) -> None:
        opened_family(reasoning_params(config).id)

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        return policy_prompt(config, rules=RULES)

    def answer(self, task: Task, config: Config, reply: str) -> str | None:
        """`reply` as an answer: texts that differ in more than white space and capitals are different answers."""
        return single_spaced(reply).casefold() or None

    def judge_prompt(self, config: Config) -> JudgePrompt:
        return judge_prompt(config, rules=AGENT)

    def demonstrate(self, task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
        """The item's own answer, or a wrong one with probability `random_share`."""
        rng, item = random.Random(seed), item_of(task)
        question = entry_of_task(task)["question"]
        answer = known_answer(item)
        if rng.random() < random_share:
            answer = _wrong_answer(item, rng, threshold=config.env.reward_threshold)
        if answer is None:
            raise UserError(f"reasoning-gym:{item.family} keeps no answers to show; set warm_start.enabled: false")
        return Demonstration(
            observations=[question],
            commands=[()],
            actions=[answer],
            final_observation=ANSWERED,
            won=answer_score(item, answer) >= config.env.reward_threshold,
        )

    def label(
        self, task: Task, config: Config, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        """Whether an answer scores enough. There are no alternatives, so none are labelled."""
        item = item_of(task)
        right = [answer_score(item, action) >= config.env.reward_threshold for action in actions]
        return [
            [Labelled(action=action, next_observation=ANSWERED, score=1 if good else -1, reason="")]
            for action, good in zip(actions, right, strict=True)
        ]

    def course(self, task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
        return course_of_one_phase(episodes, name="answering")

    def propose(self, task: Task, *, direction: str, focus: str = "", seed: int, count: int) -> list[str]:
        return drawn_level_edits(task, direction=direction, seed=seed, count=count)

    def proposal_prompt(self) -> ProposalPrompt:
        return LevelPrompt()

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        return child_of_item(task, edit, root=root, taken=taken, created=created)

    def likeness(self, task: Task) -> str:
        return item_likeness(task)


def _wrong_answer(item: Item, rng: random.Random, *, threshold: float) -> str:
    """The answer of another item of the same levels that does not score enough for this item."""
    for step in rng.sample(range(1, NEIGHBOURS + 1), NEIGHBOURS):
        try:
            found = made_entry(replace(item, index=item.index + step if item.index < NEIGHBOURS else item.index - step))
        except NoItem:
            continue
        answer = str(found["answer"]).strip()
        if answer and item.family not in WITHOUT_ANSWER and answer_score(item, answer) < threshold:
            return answer
    return WRONG
