"""ALFWorld as the stages see it: engines, tasks, prompts, labels and edits behind `rla.envs.protocols`."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.envs.alfworld import catalog
from rla.envs.alfworld.expert import contrast, expert_episode, to_compare
from rla.envs.alfworld.games import AlfworldParams, engine_of, game_of_payload, household_params, tables_for
from rla.envs.alfworld.labels import REASONS, label_steps
from rla.envs.alfworld.prompts import EditPrompt, household_judge, household_policy
from rla.envs.alfworld.tasks import builtin_tasks, check_rooms, game_likeness, split_games, task_from_game
from rla.envs.observation import Environment, offered
from rla.envs.protocols import Ask, JudgePrompt, PolicyPrompt, Proof, ProposalPrompt
from rla.envs.views import Course, Demonstration, Labelled, RejectedEdit
from rla.store.records import Status, Task
from rla.store.schema import load_schema


class Alfworld:
    """The six household tasks of ALFWorld, on built-in scenes or on imported games."""

    name = "alfworld"
    Params = AlfworldParams
    exact_text = False

    def __init__(self, edits: frozenset[str] = frozenset(), omitted: Collection[str] = ()) -> None:
        """`edits`: the names that proposed edits may have; none: what is said below `propose`. `omitted`: kinds of
        commands that the policy is never offered, so that no edit withholds them.
        """
        self._edits, self._omitted = edits, omitted

    def configured(self, config: Config) -> Alfworld:
        return Alfworld(frozenset(config.adaptation.edits), config.env.omit_commands)

    @property
    def edit_fields(self) -> frozenset[str]:
        return frozenset(load_schema("edit")["properties"])

    def check(self, config: Config) -> None:
        check_rooms(config.tasks, household_params(config).held_out_rooms)

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

    def make(self, task: Task, config: Config) -> Environment:
        return engine_of(task, config)

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        return household_policy(config)

    def judge_prompt(self, config: Config) -> JudgePrompt:
        return household_judge(config)

    def slow(self, config: Config) -> bool:
        return household_params(config).engine == "textworld"

    def warm(self, config: Config) -> None:
        if household_params(config).engine == "textworld":
            from rla.envs.alfworld.textworld import import_library

            import_library()

    def import_tasks(self, config: Config, *, split: str, tell: Callable[[str], None] | None = None) -> list[Task]:
        """Games of the folder that holds json_2.1.1, and of rooms that are held out (`rla.envs.alfworld.tasks`)."""
        return split_games(config.tasks, split=split, rooms=household_params(config).held_out_rooms)

    def export_tasks(self, tasks: Sequence[Task], folder: Path) -> int:
        from rla.envs.alfworld.textworld import export_games

        return export_games(tasks, folder)

    def demonstrate(self, task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
        return expert_episode(task, config, seed=seed, random_share=random_share)

    def play_expert(self, task: Task, config: Config, *, seed: int) -> Demonstration:
        return expert_episode(task, config, seed=seed, random_share=0.0)

    def label(
        self, task: Task, config: Config, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        rng = random.Random(seed)

        def drawn(commands: Sequence[str], taken: str) -> list[str]:
            left = [c for c in offered(commands, config.env.omit_commands) if c != taken]
            return to_compare(rng, left) if others else []

        goal = game_of_payload(task.payload).problem.goal
        return label_steps(
            tables_for(task, config), goal, actions, drawn, lambda labelled: contrast(rng, labelled, others)
        )

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterator[str]:
        """Every word that a policy or judge of this environment may meet: catalogue, replies, and played episodes."""
        yield from catalog.vocabulary()
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
        """The turns of speech that make up most of a text: a third of the tokens is saved by naming them."""
        return (*catalog.PHRASES, *(REASONS if config.judge.prompt == "plain" else ()))

    def course(self, task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
        from rla.envs.alfworld.phases import game_course

        return game_course(game_of_payload(task.payload).problem.goal, episodes)

    def propose(
        self, task: Task, *, direction: str, critique: str, focus: str = "", seed: int, count: int
    ) -> list[str]:
        """Up to `count` edits drawn by rule, as JSON texts, in the order of `propose_edits`. What is offered changes
        only where `adaptation.edits` says so.
        """
        from rla.envs.alfworld.edit_format import SCENE_KEYS
        from rla.envs.alfworld.proposals import propose_edits

        game, rng = game_of_payload(task.payload), random.Random(seed)
        fields = self._edits or SCENE_KEYS
        edits = propose_edits(game, direction=direction, rng=rng, count=count, focus=focus, fields=fields)
        return [edit.to_json() for edit in edits]

    def proposal_prompt(self) -> ProposalPrompt:
        from rla.envs.alfworld.edit_format import SCENE_KEYS

        return EditPrompt(self._edits or SCENE_KEYS)

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        """The verified child of `task`; RejectedEdit with the reason otherwise."""
        from rla.envs.alfworld.edit_format import InvalidEdit, parse_edit
        from rla.envs.alfworld.editing import apply_edit, verify

        parent = game_of_payload(task.payload)
        try:
            asked = parse_edit(edit)
            if idle := sorted({*asked.withhold} & {*self._omitted}):
                raise InvalidEdit(f"{idle[0]} is withheld, which env.omit_commands withholds from every task")
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
        return game_likeness(game_of_payload(task.payload))

    def proof(self, config: Config, ask: Ask | None) -> Proof:
        from rla.envs.alfworld.editing import EngineProof

        return EngineProof(config)
