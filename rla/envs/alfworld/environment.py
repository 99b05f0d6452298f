"""ALFWorld as the stages see it: engines, tasks, prompts, labels and edits behind `rla.envs.protocols`."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rla.config import Config
from rla.config.schema import without_effect
from rla.envs.alfworld import catalog
from rla.envs.alfworld.edits import SCENE_KEYS, InvalidEdit, apply_edit, parse_edit, verify
from rla.envs.alfworld.engine import FastEngine, FastGame, tables_of
from rla.envs.alfworld.expert import expert_episode
from rla.envs.alfworld.game import game_of
from rla.envs.alfworld.goals import wordings
from rla.envs.alfworld.labels import REASONS, label_steps
from rla.envs.alfworld.prompts import EditPrompt, household_judge, household_policy
from rla.envs.alfworld.proposals import game_course, propose_edits
from rla.envs.alfworld.tasks import builtin_tasks, check_rooms, imported_games, task_from_game
from rla.envs.observation import Environment
from rla.envs.protocols import (
    Ask,
    Course,
    Demonstration,
    JudgePrompt,
    Labelled,
    PolicyPrompt,
    Proof,
    ProposalPrompt,
    RejectedEdit,
)
from rla.store.records import Status, Task
from rla.store.schema import load_schema

# Phrases that a small model's tokenizer gives a token of their own; they save a third of the tokens of a text.
_PHRASES = (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AlfworldParams:
    """Parameters of the ALFWorld environment (`docs/guide/alfworld.md`)."""

    engine: Literal["fast", "textworld"] = "fast"  # plain Python, or the alfworld package's own
    grammar: Literal["file", "packaged"] = "file"  # the wording of the game file, or of the installed package
    # Engines that prove a changed task; auto: both if both are installed. Candidates record which it was.
    verify_engines: Literal["auto", "fast", "both"] = without_effect("auto")
    # Scenes of the training games, such as FloorPlan301, that do not train but make up the split held_out_rooms
    held_out_rooms: tuple[str, ...] = ()


class Alfworld:
    """The six household tasks of ALFWorld, on built-in scenes or on imported games."""

    name = "alfworld"
    Params = AlfworldParams
    exact_text = False

    def __init__(self, edits: frozenset[str] = frozenset(), omitted: Collection[str] = ()) -> None:
        """`edits`: the keys that a proposed edit may have (empty: `SCENE_KEYS`). `omitted`: kinds of commands that the
        policy is never offered, so that no edit needs to withhold them.
        """
        self._edits, self._omitted = edits or SCENE_KEYS, omitted

    def configured(self, config: Config) -> Alfworld:
        return Alfworld(frozenset(config.adaptation.edits), config.env.omit_commands)

    @property
    def edit_fields(self) -> frozenset[str]:
        return frozenset(load_schema("edit")["properties"])

    def check(self, config: Config) -> None:
        check_rooms(config.tasks, config.env.own.held_out_rooms)

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        return builtin_tasks(
            seed=seed,
            scenes=config.tasks.scenes(split),
            tasks_per_scene=config.tasks.tasks_per_scene,
            size=config.tasks.size,
            kinds=config.tasks.kinds_of(split),
            split=split,
            held_out=config.tasks.held_out(split),
        )

    def import_tasks(self, config: Config, *, split: str, tell: Callable[[str], None] | None = None) -> list[Task]:
        return imported_games(config.tasks, split=split, rooms=config.env.own.held_out_rooms)

    def export_tasks(self, tasks: Sequence[Task], folder: Path) -> int:
        from rla.envs.alfworld.textworld import export_games

        return export_games(tasks, folder)

    def make(self, task: Task, config: Config) -> Environment:
        fast = FastEngine(_tables(task, config))
        if not self.slow(config):
            return fast
        from rla.envs.alfworld.textworld import StockEngine

        return StockEngine(fast.tables.game, beside=fast)

    def slow(self, config: Config) -> bool:
        return bool(config.env.own.engine == "textworld")

    def warm(self, config: Config) -> None:
        if self.slow(config):
            from rla.envs.alfworld.textworld import import_library

            import_library()

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        return household_policy(config)

    def judge_prompt(self, config: Config) -> JudgePrompt:
        return household_judge(config)

    def demonstrate(self, task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
        return expert_episode(
            _tables(task, config),
            seed=seed,
            random_share=random_share,
            max_steps=config.env.max_steps,
            omit=config.env.omit_commands,
        )

    def play_expert(self, task: Task, config: Config, *, seed: int) -> Demonstration:
        return self.demonstrate(task, config, seed=seed, random_share=0.0)

    def label(
        self, task: Task, config: Config, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        omit = config.env.omit_commands
        return label_steps(_tables(task, config), actions, others=others, omit=omit, seed=seed)

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterator[str]:
        """Every word that a policy or judge may read: types, wordings, numbers, reasons, and played episodes."""
        yield " ".join(sorted(name.lower() for name in catalog.TYPES))
        yield from wordings()
        yield " ".join(str(number) for number in range(1, catalog.LARGEST_NUMBER + 1))
        judge = self.judge_prompt(config)
        yield from (judge.render(score, reason) for reason in REASONS for score in (1, -1))
        yield "judge: no action"
        for number, task in enumerate(tasks):
            played = self.demonstrate(task, config, seed=number, random_share=0.5)
            yield task.instruction
            yield from played.observations
            yield from (command for commands in played.commands for command in commands)
            yield played.final_observation

    def tokenizer_phrases(self, config: Config) -> Sequence[str]:
        return (*_PHRASES, *(REASONS if config.judge.prompt == "plain" else ()))

    def course(self, task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
        return game_course(game_of(task.payload).problem.goal, episodes)

    def propose(
        self, task: Task, *, direction: str, critique: str, focus: str = "", seed: int, count: int
    ) -> list[str]:
        """Up to `count` edits drawn by rule, as JSON texts, best first (`propose_edits`)."""
        game, rng = game_of(task.payload), random.Random(seed)
        edits = propose_edits(game, direction=direction, rng=rng, count=count, focus=focus, fields=self._edits)
        return [edit.to_json() for edit in edits]

    def proposal_prompt(self) -> ProposalPrompt:
        return EditPrompt(self._edits)

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        """The verified child of `task`. Raises RejectedEdit with the reason."""
        parent = game_of(task.payload)
        try:
            asked = parse_edit(edit)
            if idle := sorted({*asked.withhold} & {*self._omitted}):
                raise InvalidEdit(f"{idle[0]} is withheld, which env.omit_commands withholds from every task")
            child = apply_edit(parent, asked)
            plan_length = verify(child, parent=parent, root=game_of(root.payload), others=taken)
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
        return game_of(task.payload).likeness()

    def proof(self, config: Config, ask: Ask | None) -> Proof:
        from rla.envs.alfworld.textworld import EngineProof

        return EngineProof(config)


def _tables(task: Task, config: Config) -> FastGame:
    return tables_of(task.payload, packaged=config.env.own.grammar == "packaged")
