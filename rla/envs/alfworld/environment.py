"""ALFWorld as the stages see it: engines, tasks, prompts, labels and edits behind `rla.envs.protocols.Setting`."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rla.config import Config
from rla.config.sections import EnvConfig, TasksConfig
from rla.envs.alfworld import catalog
from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.alfworld.labels import REASONS, label_steps
from rla.envs.alfworld.problem import Game
from rla.envs.alfworld.prompts import (
    IndexPolicyPrompt,
    PlainJudgePrompt,
    PublishedJudgePrompt,
    TextPolicyPrompt,
)
from rla.envs.alfworld.tasks import builtin_tasks, game_of, import_tasks, likeness, task_from_game
from rla.envs.course import Course
from rla.envs.defaults import StepByStep
from rla.envs.observation import Environment, offered
from rla.envs.protocols import (
    Demonstration,
    JudgePrompt,
    Labelled,
    PolicyPrompt,
    ProposalPrompt,
    RejectedEdit,
)
from rla.store.records import Status, Task

PHRASES = (
    "you are in the middle of a room. looking quickly around you, you see a",
    "your task is to:",
    "you arrive at",
    "nothing happens.",
    ". on the",
    ", you see a",
    ", you see nothing.",
    ", and a",
    ", a",
    "is closed.",
    "is open. in it, you see a",
    "is open. in it, you see nothing.",
    "you open the",
    "you close the",
    "you pick up the",
    "from the",
    "you move the",
    "you put the",
    "to the",
    "in/on the",
    "using the",
    "go to",
    "judge:",
    "score +1",
    "score -1",
)
WAYS = 6  # commands that go somewhere, of those that a judge may learn on beside the action taken


@lru_cache(maxsize=512)
def tables_of(payload: str, packaged: bool = False) -> FastGame:
    """The fast engine's tables of a task's payload: parsed once, shared by all its episodes."""
    return FastGame(game_of_payload(payload, packaged))


@lru_cache(maxsize=512)
def game_of_payload(payload: str, packaged: bool = False) -> Game:
    """The game of a payload; `packaged` forces the installed package's wording on it."""
    return game_of(payload, force_packaged=packaged)


def random_action(rng: random.Random, among: Sequence[str]) -> str:
    """A command of a verb drawn first: uniform over commands, most would be `go to`."""
    verb = rng.choice(sorted({command.split(" ", 1)[0] for command in among}))
    return rng.choice([command for command in among if command.split(" ", 1)[0] == verb])


def candidates(rng: random.Random, commands: Sequence[str]) -> list[str]:
    """All commands but those that go somewhere, of which there are too many to label: a few of them."""
    going = [command for command in commands if command.startswith("go to ")]
    return [c for c in commands if not c.startswith("go to ")] + sorted(rng.sample(going, min(WAYS, len(going))))


def contrast(rng: random.Random, labelled: Sequence[Labelled], count: int) -> list[Labelled]:
    """Up to `count` of them in pairs: one that helps, and one of the same verb that does not, where there are such.

    Drawn evenly, nine of ten that take something take the wrong thing, and a judge learns that to take is wrong.
    """
    left = list(labelled)
    kept: list[Labelled] = []
    while left and len(kept) < count:
        wanted = 1 if len(kept) % 2 == 0 else -1
        verb = kept[-1].action.split(" ", 1)[0] if wanted < 0 else ""
        found = [one for one in left if one.score == wanted]
        near = [one for one in found if one.action.split(" ", 1)[0] == verb] or found or left
        names = [one.action for one in near]
        chosen = near[names.index(random_action(rng, names))]
        left.remove(chosen)
        kept.append(chosen)
    return kept


class AlfworldSetting(StepByStep):
    """The six household tasks of ALFWorld, on built-in scenes or on imported games."""

    name = "alfworld"
    imported: Literal["alfworld", "files"] = "alfworld"

    def make(self, task: Task, config: EnvConfig) -> Environment:
        packaged = config.grammar == "packaged"
        if config.engine == "textworld":
            from rla.envs.alfworld.textworld import StockEngine

            return StockEngine(game_of_payload(task.payload, packaged))
        return FastEngine(tables_of(task.payload, packaged))

    def slow(self, config: EnvConfig) -> bool:
        return config.engine == "textworld"

    def warm(self, config: EnvConfig) -> None:
        if config.engine == "textworld":
            from rla.envs.alfworld.textworld import import_library

            import_library()

    def make_tasks(self, config: TasksConfig, *, seed: int, split: str, env: EnvConfig | None = None) -> list[Task]:
        held_out = split == config.test_split
        return builtin_tasks(
            seed=seed,
            scenes=config.test_scenes if held_out else config.train_scenes,
            tasks_per_scene=config.tasks_per_scene,
            size=config.size,
            kinds=config.kinds,
            split=split,
            held_out=held_out,
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
        return list(import_tasks(folder, split=split, limit=limit))

    def export_tasks(self, tasks: Sequence[Task], folder: Path) -> int:
        from rla.envs.alfworld.export import export_games

        return export_games(tasks, folder)

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        made = IndexPolicyPrompt if config.policy.reply == "index" else TextPolicyPrompt
        return made(repeat_task=config.policy.repeat_task)

    def judge_prompt(self, config: Config) -> JudgePrompt:
        if config.judge.prompt == "published":
            return PublishedJudgePrompt()
        return PlainJudgePrompt(repeat_task=config.policy.repeat_task)

    def demonstrate(self, task: Task, config: EnvConfig, *, seed: int, random_share: float) -> Demonstration:
        """An expert's episode in which a share of the actions is drawn at random."""
        from rla.envs.alfworld.expert import Expert

        rng = random.Random(seed)
        expert = Expert(seed=seed)
        engine = FastEngine(tables_of(task.payload, config.grammar == "packaged"))
        observation = engine.reset()
        observations: list[str] = []
        commands: list[tuple[str, ...]] = []
        actions: list[str] = []
        for _ in range(config.max_steps):
            shown = offered(observation.commands, config.omit_commands)
            action = expert.act(observation.text, observation.commands)
            follow = rng.random() >= random_share and action in shown
            if not follow:
                action = random_action(rng, shown)
                expert.notice(action)
            observations.append(observation.text)
            commands.append(shown)
            actions.append(action)
            observation = engine.step(action)
            if observation.won:
                break
        return Demonstration(
            observations=observations,
            commands=commands,
            actions=actions,
            final_observation=observation.text,
            won=observation.won,
        )

    def label(
        self, task: Task, config: EnvConfig, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        tables = tables_of(task.payload, config.grammar == "packaged")
        rng = random.Random(seed)

        def drawn(commands: Sequence[str], taken: str) -> list[str]:
            left = [c for c in offered(commands, config.omit_commands) if c != taken]
            return candidates(rng, left) if others else []

        goal = game_of_payload(task.payload).problem.goal
        return label_steps(tables, goal, actions, drawn, lambda labelled: contrast(rng, labelled, others))

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterator[str]:
        """Every word that a policy or judge of this environment may meet: catalogue, replies, and played episodes."""
        yield from catalog.vocabulary()
        judge = self.judge_prompt(config)
        yield from (judge.render(score, reason) for reason in REASONS for score in (1, -1))
        yield "judge: no action"
        for number, task in enumerate(tasks):
            played = self.demonstrate(task, config.env, seed=number, random_share=0.5)
            yield task.instruction
            yield from played.observations
            yield from (command for commands in played.commands for command in commands)
            yield played.final_observation

    def tokenizer_phrases(self, config: Config) -> Sequence[str]:
        """The turns of speech that make up most of a text: a third of the tokens is saved by naming them."""
        return (*PHRASES, *(REASONS if config.judge.prompt == "plain" else ()))

    def course(self, task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
        from rla.envs.alfworld.phases import course_of

        return course_of(game_of_payload(task.payload).problem.goal, episodes)

    def propose(
        self, task: Task, *, direction: str, critique: str, focus: str = "", seed: int, count: int
    ) -> list[str]:
        """Up to `count` edits drawn by rule, as JSON texts, in the order of `propose_edits`."""
        from rla.envs.alfworld.edits import propose_edits

        game, rng = game_of_payload(task.payload), random.Random(seed)
        edits = propose_edits(game, direction=direction, rng=rng, count=count, focus=focus)
        return [edit.to_json() for edit in edits]

    def proposal_prompt(self) -> ProposalPrompt:
        from rla.envs.alfworld.proposal_prompt import EditPrompt

        return EditPrompt()

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        """The verified child of `task`; RejectedEdit with the reason otherwise."""
        from rla.envs.alfworld.edits import InvalidEdit, apply_edit, parse_edit, verify

        parent = game_of_payload(task.payload)
        try:
            asked = parse_edit(edit)
            child = apply_edit(parent, asked)
            plan_length = verify(child, parent=parent, root=game_of_payload(root.payload), others=taken)
        except InvalidEdit as refused:
            raise RejectedEdit(str(refused)) from None
        return task_from_game(
            child,
            split=task.split,
            scene=task.scene,
            slot=task.slot,
            status=Status.PENDING.value,
            parent_id=task.task_id,
            depth=task.depth + 1,
            created=created,
            edit=asked.to_json(),
            plan_length=plan_length,
        )

    def likeness(self, task: Task) -> str:
        return likeness(game_of_payload(task.payload))

    def solution(self, task: Task, config: EnvConfig) -> list[str]:
        from rla.envs.alfworld.solver import solve

        return list(solve(tables_of(task.payload, config.grammar == "packaged")) or ())

    def second_engine(self, config: EnvConfig) -> EnvConfig | None:
        """TextWorld, where the extra is installed."""
        installed = all(find_spec(name) is not None for name in ("alfworld", "textworld"))
        return replace(config, engine="textworld") if installed else None
