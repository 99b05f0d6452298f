"""A test environment that only a model with eyes can win: a square of a colour, and commands that name colours."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from unittest.mock import patch

from rla.config import Config, load
from rla.envs import registry
from rla.envs.authoring import label_through, play_through, root_task
from rla.envs.chat_prompts import judge_prompt, policy_prompt
from rla.envs.observation import EnvironmentFailure, Observation
from rla.envs.protocols import Demonstration, JudgePrompt, Labelled, PolicyPrompt
from rla.plugins import registered
from rla.store.records import Task
from tests.seeing import COLOURS, noise_png, png_of

NAME = "squares"
PARAMS = """
seed: 5
env: {name: squares, max_steps: 3}
tasks: {train_scenes: 6, test_scenes: 3, tasks_per_scene: 1}
model:
  {hidden_size: 32, layers: 2, heads: 2, intermediate_size: 48, context: 256,
   architecture: seeing}
launch: {threads: 1}
generator: {context: 256, max_sequences: 8}
policy: {reply: text, history: window, images: 2, decoding: admissible, max_tokens: 8, temperature: 1.0}
judge: {prompt: plain, decoding: admissible, max_tokens: 8, temperature: 1.0, votes: 2}
rollout: {tasks_per_iteration: 4, rollouts_per_task: 4}
credit: {reward_model_band: [0.0, 1.0], policy_band: [-1, 2]}
train_policy: {lr: 1.0e-3, updates: 2, kl_coef: 0.01}
train_rm: {lr: 1.0e-3, updates: 2}
adaptation: {enabled: false}
warm_start:
  policy: {examples: 12, steps: 4, batch_size: 4}
  reward: {examples: 8, steps: 3, batch_size: 4}
evaluation: {rollouts_per_task: 1, max_steps: 3}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SquaresParams:
    shown: bool = True  # false: texts alone
    broken: bool = False  # what is shown is no picture
    noise: int = 0  # pixels of a side of pictures that compress badly, each another one; 0: plain small squares


class SquaresGame:
    """Three squares, each of a colour that has to be named; one wrong answer ends the episode."""

    def __init__(self, task: Task, config: Config) -> None:
        self.colours, self.own, self.place, self.name = task.scene.split(), config.env.own, 0, task.task_id
        self.commands = tuple(COLOURS)

    def reset(self) -> Observation:
        self.place = 0
        return self._seen()

    def step(self, action: str) -> Observation:
        if self.place >= len(self.colours):
            raise EnvironmentFailure("the episode is over")
        right = action == self.colours[self.place]
        self.place = self.place + 1 if right else len(self.colours)
        return self._seen(won=right and self.place == len(self.colours), done=not right)

    def _seen(self, *, won: bool = False, done: bool = False) -> Observation:
        shade: str | tuple[int, int, int] = (90, 90, 90)
        if self.place < len(self.colours):
            shade = self.colours[self.place]
        png = b"GIF89a" if self.own.broken else png_of(shade, width=24, height=16)
        if self.own.noise:
            png = noise_png(f"{self.name} {self.place}", side=self.own.noise)
        images = (png,) if self.own.shown else ()
        return Observation(text="which colour is it ?", commands=self.commands, won=won, done=done, images=images)

    def close(self) -> None: ...


class Squares:
    """Name the colours of squares."""

    name, Params, exact_text = NAME, SquaresParams, False

    def shows_images(self, config: Config) -> bool:
        return bool(config.env.own.shown)

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        rng = random.Random(f"{split} {seed}")
        rows = [" ".join(rng.choices(list(COLOURS), k=3)) for _ in range(4 * config.tasks.count(split))]
        rows = (rows if config.env.own.noise else list(dict.fromkeys(rows)))[: config.tasks.count(split)]
        return [
            root_task(env=NAME, split=split, instruction="name the colours .", content=[split, row, number], scene=row)
            for number, row in enumerate(rows)
        ]

    def make(self, task: Task, config: Config) -> SquaresGame:
        return SquaresGame(task, config)

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        return policy_prompt(config)

    def judge_prompt(self, config: Config) -> JudgePrompt:
        return judge_prompt(config)

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterable[str]:
        return ["which colour is it ? judge: score +1 score -1 > no action", *COLOURS]

    def tokenizer_phrases(self, config: Config) -> Sequence[str]:
        return ()

    def demonstrate(self, task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
        game = SquaresGame(task, config)
        return play_through(
            game, lambda _: game.colours[game.place], config=config, seed=seed, random_share=random_share
        )

    def label(
        self, task: Task, config: Config, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        game = SquaresGame(task, config)
        return label_through(
            game, actions, lambda action: action == game.colours[game.place], config=config, others=others, seed=seed
        )


@contextmanager
def squares_installed() -> Iterator[None]:
    """The environment among the built-in ones, and `seeing` among the architectures."""
    environment = EntryPoint(name=NAME, value="tests.squares:Squares", group=registry.GROUP)
    seeing = EntryPoint(name="seeing", value="tests.seeing:SeeingModel", group=load.MODELS)

    def with_seeing(group: str) -> dict[str, EntryPoint]:
        return registered(group) | ({"seeing": seeing} if group == load.MODELS else {})

    with patch.dict(registry.BUILTIN, {NAME: environment}), patch.object(load, "registered", with_seeing):
        yield
