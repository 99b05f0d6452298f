"""ALFWorld as the stages see it: engines, tasks, prompts, labels and edits behind `rla.envs.protocols`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rla.config import Config
from rla.envs.alfworld import catalog
from rla.envs.alfworld.edits import EDIT_KEYS, EditPrompt, apply_edit, parse_edit, verify
from rla.envs.alfworld.engine import FastEngine, tables_of
from rla.envs.alfworld.expert import expert_episode
from rla.envs.alfworld.game import game_of
from rla.envs.alfworld.goals import wordings
from rla.envs.alfworld.proposals import game_course, propose_edits
from rla.envs.alfworld.solver import REASONS, label_steps
from rla.envs.alfworld.tasks import builtin_tasks, check_rooms, imported_games, task_from_game
from rla.envs.chat_prompts import QUOTED, ChatJudge, PlainJudge, policy_prompt
from rla.envs.observation import Environment
from rla.envs.protocols import Course, Demonstration, JudgePrompt, Labelled, PolicyPrompt, ProposalPrompt
from rla.store.records import Status, Task

_WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
_RULES = "You are playing a text game in a household. Finish the task in as few steps as you can."
_RUBRIC = (
    "You judge one step of an agent that plays a text game in a household. Answer 1 when the step is sensible: "
    "it explores, makes progress or finishes, its reasoning is present, relevant and true to the "
    "observations, and its action is one of the commands offered. Answer -1 otherwise: no reasoning, an action "
    "that is not offered, an irrelevant or contradictory one, or one that undoes progress. "
    f"{QUOTED} "
    "Think first, then give the score as \\boxed{1} or \\boxed{-1}."
)
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
class _AlfworldParams:
    """Parameters of the ALFWorld environment (`docs/guide/alfworld.md`)."""

    engine: Literal["fast", "textworld"] = "fast"  # plain Python, or the alfworld package's own
    # Scenes of the training games, such as FloorPlan301, that do not train but make up the split held_out_rooms
    held_out_rooms: tuple[str, ...] = ()


class Alfworld:
    """The six household tasks of ALFWorld, on built-in scenes or on imported games."""

    name = "alfworld"
    Params = _AlfworldParams
    exact_text = False

    edit_fields = EDIT_KEYS

    def __init__(self, edits: Iterable[str] = ()) -> None:
        """`edits`: the keys that a proposed edit may have; empty: all."""
        self._edits = frozenset(edits) or EDIT_KEYS

    def configured(self, config: Config) -> Alfworld:
        return Alfworld(config.adaptation.edits)

    def check(self, config: Config) -> None:
        check_rooms(config.tasks, config.env.own.held_out_rooms)

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        return builtin_tasks(config.tasks, split=split, seed=seed)

    def import_tasks(self, config: Config, *, split: str, tell: Callable[[str], None] | None = None) -> list[Task]:
        return imported_games(config.tasks, split=split, rooms=config.env.own.held_out_rooms)

    def make(self, task: Task, config: Config) -> Environment:
        fast = FastEngine(tables_of(task.payload))
        if not self.slow(config):
            return fast
        from rla.envs.alfworld.textworld import StockEngine, game_data

        return StockEngine(game_data(fast.tables.game), fast=fast)

    def slow(self, config: Config) -> bool:
        return bool(config.env.own.engine == "textworld")

    def warm(self, config: Config) -> None:
        if self.slow(config):
            from rla.envs.alfworld.textworld import import_library

            import_library()

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        """With `reply: text` a bare command answers a bare observation; otherwise the policy reasons about a list."""
        told = policy_prompt(config, rules=_RULES)
        return replace(told, listed=False, heading=_WELCOME) if told.reply == "text" else told

    def judge_prompt(self, config: Config) -> JudgePrompt:
        """`plain`: bare observations and commands, for small models trained on them. `published`: a rubric."""
        if config.judge.prompt == "published":
            return ChatJudge(rubric=_RUBRIC)
        return PlainJudge(repeat_task=config.policy.repeat_task, reasons=REASONS, heading=_WELCOME)

    def demonstrate(self, task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
        return expert_episode(tables_of(task.payload), config, seed=seed, random_share=random_share)

    def play_expert(self, task: Task, config: Config, *, seed: int) -> Demonstration:
        return self.demonstrate(task, config, seed=seed, random_share=0.0)

    def label(
        self, task: Task, config: Config, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        omit = config.env.omit_commands
        return label_steps(tables_of(task.payload), actions, others=others, omit=omit, seed=seed)

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

    def propose(self, task: Task, *, direction: str, focus: str = "", seed: int, count: int) -> list[str]:
        """Up to `count` edits drawn by rule, as JSON texts, best first (`propose_edits`)."""
        game, rng = game_of(task.payload), random.Random(seed)
        edits = propose_edits(game, direction=direction, rng=rng, count=count, focus=focus, keys=self._edits)
        return [json.dumps(edit, sort_keys=True) for edit in edits]

    def proposal_prompt(self) -> ProposalPrompt:
        return EditPrompt(self._edits)

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        """The verified child of `task`. Raises RejectedEdit with the reason."""
        parent = game_of(task.payload)
        asked = parse_edit(edit, parent)
        child = apply_edit(parent, asked)
        plan_length = verify(child, parent=parent, root=game_of(root.payload), others=taken)
        return task_from_game(
            child,
            split=task.split,
            scene=task.scene,
            slot=task.slot,
            status=Status.PENDING.value,
            parent_id=task.task_id,
            depth=task.depth + 1,
            created=created,
            edit=json.dumps(asked, sort_keys=True),
            plan_length=plan_length,
        )

    def likeness(self, task: Task) -> str:
        return game_of(task.payload).likeness()
