"""Guess a number: an environment for rla. It answers each guess with "higher", "lower" or "right"."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.envs.authoring import changed_task, course_of_one_phase, edit_values, label_through, play_through, root_task
from rla.envs.chat_prompts import judge_prompt, policy_prompt
from rla.envs.observation import EnvironmentFailure, Observation
from rla.envs.protocols import Course, Demonstration, JudgePrompt, Labelled, PolicyPrompt, RejectedEdit
from rla.metrics.custom import Figure
from rla.report.collect import RunSummary
from rla.report.tables import Table, percent
from rla.store.reading import stream_rows
from rla.store.records import Direction, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessNumberParams:
    largest: int = 21  # the range of a new task ends here or earlier


def answer_to(guess: int, secret: int) -> str:
    return "right" if guess == secret else "higher" if guess < secret else "lower"


class Game:
    """One episode. `left`: the numbers that the answers so far leave possible."""

    def __init__(self, task: Task) -> None:
        self.rules, self.over = json.loads(task.payload), True
        self.commands = tuple(map(str, range(self.rules["low"], self.rules["high"] + 1)))

    def reset(self) -> Observation:
        self.left, self.over = list(self.commands), False
        text = f"Guess my number, from {self.left[0]} to {self.left[-1]}."
        return Observation(text=text, commands=self.commands)

    def step(self, action: str) -> Observation:
        if self.over:
            raise EnvironmentFailure("the episode is over: call reset")
        text = "That is none of the numbers."
        if action in self.commands:
            text = answer_to(int(action), self.rules["secret"])
            self.left = [n for n in self.left if answer_to(int(action), int(n)) == text]
        self.over = text == "right"
        return Observation(text=text, commands=self.commands, won=self.over, done=self.over)

    def close(self) -> None: ...


class GuessNumber:
    """Guess a number by the answers "higher" and "lower"."""

    name, Params, edit_fields = "guess-number", GuessNumberParams, frozenset({"low", "high"})

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        """Ranges that end in odd numbers train, the others are held out; edits move both ends by even numbers."""
        ends = range(4 if config.tasks.held_out(split) else 5, config.env.own.largest + 1, 2)
        rules = [{"low": 1, "high": end, "secret": number} for end in ends for number in range(1, end + 1)]
        drawn = random.Random(seed).sample(rules, min(len(rules), config.tasks.count(split)))
        return [root_task(env=self.name, split=split, instruction="guess the number.", content=one) for one in drawn]

    def make(self, task: Task, config: Config) -> Game:
        return Game(task)

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        return policy_prompt(config, rules="You guess a number in as few guesses as you can.")

    def judge_prompt(self, config: Config) -> JudgePrompt:
        return judge_prompt(config, rules="an agent that guesses a number")

    def demonstrate(self, task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
        """Binary search, with a share of random guesses."""
        game = Game(task)
        return play_through(
            game, lambda _: game.left[len(game.left) // 2], config=config, seed=seed, random_share=random_share
        )

    def play_expert(self, task: Task, config: Config, *, seed: int) -> Demonstration:
        return self.demonstrate(task, config, seed=seed, random_share=0.0)

    def label(
        self, task: Task, config: Config, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        """A guess helps where it may be the number."""
        game = Game(task)
        return label_through(game, actions, lambda guess: guess in game.left, config=config, others=others, seed=seed)

    def course(self, task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
        return course_of_one_phase(episodes, name="guessing")

    def propose(self, task: Task, *, direction: str, focus: str = "", seed: int, count: int) -> list[str]:
        """Harder: a range of up to twice the size. Easier: a hint, which is a range of half the size."""
        low, high, secret = (json.loads(task.payload)[name] for name in ("low", "high", "secret"))
        half = (high - low) // 4 * 2
        if direction == Direction.HARDER:
            found = [(low, end) for end in range(high + 2, 2 * high - low + 1, 2)]
        else:
            found = [(n, n + half) for n in range(low, high - half + 1, 2) if half and n <= secret <= n + half]
        drawn = random.Random(seed).sample(found, min(count, len(found)))
        return [json.dumps({"low": start, "high": end}) for start, end in drawn]

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        """The number lies in the new range, so that binary search finds it: no other proof is needed."""
        rules, new = json.loads(task.payload), edit_values(edit, {"low": int, "high": int})
        if not 1 <= new["low"] <= rules["secret"] <= new["high"] <= 99 or new["high"] - new["low"] < 2:
            raise RejectedEdit("the number must lie in the range, which has 3 to 99 numbers, none above 99")
        if any((new[end] - rules[end]) % 2 for end in new):
            raise RejectedEdit("an end of the range moves by an odd number, as those of held-out tasks would")
        plan = (new["high"] - new["low"] + 1).bit_length()
        return changed_task(task, content=rules | new, edit=new, taken=taken, created=created, plan_length=plan)

    def likeness(self, task: Task) -> str:
        return task.task_id


def guess(seed: int = 0) -> None:
    """Play a game in the terminal: an empty line ends it.

    Example: rla guess --seed 3
    """
    low, high = 1, 21
    game = Game(
        root_task(
            env=GuessNumber.name,
            split="train",
            instruction="guess the number.",
            content={"low": low, "high": high, "secret": random.Random(seed).randint(low, high)},
        )
    )
    print(game.reset().text)
    while not game.over and (said := input("> ").strip()):
        print(game.step(said).text)


class GuessTables:
    """How many of the guesses are numbers at all: a key of `metrics.json`, a curve and a table of the report."""

    figures = (Figure(key="guesses_valid", panel="Guesses that are numbers", tag="guesses/valid", share=True),)

    def measure(self, trajectories: Path, config: Config, *, held_out: Sequence[Task]) -> dict[str, Any]:
        """Asked about runs of any environment: one that plays another game has no such key."""
        if config.env.name != GuessNumber.name:
            return {}
        columns = ["task_id", "steps.list.element.valid"]
        valid = [step["valid"] for row in stream_rows(trajectories, "trajectories", columns) for step in row["steps"]]
        return {"guesses_valid": sum(valid) / len(valid) if valid else None}

    def tables(self, summary: RunSummary) -> list[Table]:
        rows = [(str(row["iteration"]), row.get("guesses_valid")) for row in summary.iterations]
        cells = tuple((number, percent(share)) for number, share in rows if share is not None)
        return [Table(title="Guesses", columns=("iteration", "numbers"), rows=cells)]
