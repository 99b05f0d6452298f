"""A desktop as an environment: screenshots, mouse and keyboard, verifiers of states, a judge of steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rla.config import Config
from rla.envs.chat_prompts import PlainJudge, policy_prompt
from rla.envs.observation import AwaitedEnvironment
from rla.envs.protocols import Ask, Course, Demonstration, JudgePrompt, Labelled, PolicyPrompt, Proof, ProposalPrompt
from rla.store.records import Task
from rla_screens.desktop.adapting import (
    DESKTOP_FIELDS,
    DesktopProposals,
    child_of_desktop,
    desktop_course,
    drawn_desktop_edits,
    likeness_of_scenario,
)
from rla_screens.desktop.episode import DesktopService, LoneDesktop
from rla_screens.desktop.importing import import_desktop_tasks
from rla_screens.desktop.params import DesktopParams, check_desktop, desktop_params
from rla_screens.desktop.proving import DesktopProof
from rla_screens.desktop.scenarios import NAME, scenario_of
from rla_screens.desktop.scripts import SCRIPT_REASONS, demonstrated_desktop, labelled_desktop, shown_action
from rla_screens.desktop.tasks import desktop_tasks
from rla_screens.screens.forms import FORMS
from rla_screens.screens.prompts import ScreenJudge, ScreenPrompt

RULES = "You use a desktop computer by mouse and keyboard. You see its screen in screenshots."
AGENT = "an agent that uses a desktop computer"


class Desktop:
    """Real applications on machines of their own."""

    name = NAME
    Params = DesktopParams
    exact_text = True
    edit_fields = frozenset(DESKTOP_FIELDS)

    def check(self, config: Config) -> None:
        check_desktop(config)

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        """Our own scenes for `tasks.kinds`: domains (files, text, preferences, spreadsheets) or names. There are
        few.
        """
        return desktop_tasks(
            config.tasks.kinds_of(split),
            count=config.tasks.count(split),
            held_out=config.tasks.held_out(split),
            seed=seed,
            split=split,
            hints=desktop_params(config).hints,
        )

    def import_tasks(self, config: Config, *, split: str, tell: Callable[[str], None] | None = None) -> list[Task]:
        own, held_out = desktop_params(config), config.tasks.held_out(split)
        return import_desktop_tasks(
            (own.test_path if held_out else "") or str(config.tasks.path),
            own,
            split=split,
            held_out=None if own.test_path else held_out,
            limit=config.tasks.limit,
            tell=tell,
        )

    def make(self, task: Task, config: Config) -> AwaitedEnvironment:
        """An episode with machines of its own; the episodes of a stage share a pool (`service`)."""
        return LoneDesktop(task, desktop_params(config))

    def service(self, config: Config) -> DesktopService:
        return DesktopService(desktop_params(config))

    def shows_images(self, config: Config) -> bool:
        return True

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        return ScreenPrompt(chat=policy_prompt(config), form=FORMS[desktop_params(config).actions], rules=RULES)

    def judge_prompt(self, config: Config) -> JudgePrompt:
        if config.judge.prompt == "plain":
            return PlainJudge(repeat_task=config.policy.repeat_task, reasons=("", *SCRIPT_REASONS))
        return ScreenJudge(agent=AGENT)

    def demonstrate(self, task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
        return demonstrated_desktop(task, config, seed=seed, random_share=random_share)

    def label(
        self, task: Task, config: Config, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        return labelled_desktop(task, config, actions, others=others, seed=seed)

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterator[str]:
        """Instructions, scripts, and the judge's verdicts; no machine is started."""
        form = FORMS[desktop_params(config).actions]
        for task in tasks:
            yield task.instruction
            yield from (shown_action(form.name, action) for action in scenario_of(task).solution)
        yield from self.judge_prompt(config).replies()

    def tokenizer_phrases(self, config: Config) -> Sequence[str]:
        return ()

    def course(self, task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
        return desktop_course(episodes)

    def propose(self, task: Task, *, direction: str, focus: str = "", seed: int, count: int) -> list[str]:
        return drawn_desktop_edits(task, direction=direction, seed=seed, count=count)

    def proposal_prompt(self) -> ProposalPrompt:
        return DesktopProposals()

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        return child_of_desktop(task, edit, root=root, taken=taken, created=created)

    def likeness(self, task: Task) -> str:
        return likeness_of_scenario(scenario_of(task))

    def proof(self, config: Config, ask: Ask | None) -> Proof:
        return DesktopProof(
            desktop_params(config), max_steps=config.env.max_steps, threshold=config.env.reward_threshold
        )
