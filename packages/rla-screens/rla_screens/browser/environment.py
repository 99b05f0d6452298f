"""Web pages as an environment: MiniWoB++ in a real Chromium, as text or as pixels (`docs/guide/browser.md`)."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rla.config import Config
from rla.envs.chat_prompts import PlainJudge, judge_prompt, policy_prompt
from rla.envs.observation import Environment
from rla.envs.protocols import Ask, Course, Demonstration, JudgePrompt, Labelled, PolicyPrompt, Proof, ProposalPrompt
from rla.store.records import Task
from rla_screens.browser.adapting import PAGE_FIELDS, child_of_page, drawn_page_edits
from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.desk import PLAYERS, browser_desk, remember
from rla_screens.browser.episode import BrowserService
from rla_screens.browser.labels import REASONS, PageLabels
from rla_screens.browser.lone import LonePage
from rla_screens.browser.modes import page_view
from rla_screens.browser.page_course import page_course
from rla_screens.browser.page_proposals import PageProposals
from rla_screens.browser.params import BLANKED, BrowserParams, browser_params, check_browser
from rla_screens.browser.pixel_vocabulary import pixel_texts
from rla_screens.browser.playing import demonstrated_page
from rla_screens.browser.proving import StepsProof
from rla_screens.browser.scenes import scene_of
from rla_screens.browser.tasks import NAME, blanked_tasks, page_tasks, scene_likeness
from rla_screens.browser.vocabulary import page_texts
from rla_screens.screens.forms import FORMS
from rla_screens.screens.prompts import ScreenJudge, ScreenPrompt

RULES = (
    'You use a web page. Each line is an element with its number, or a text. Commands: click N, type "words" in N, '
    'select "option" in N, press Enter, hover N, drag N to M, and done, which ends the task.'
)
SCREEN_RULES = "You use a web page by mouse and keyboard. You see it in screenshots."
AGENT = "an agent that uses a web page"


class BrowserPages:
    """The pages of MiniWoB++."""

    name = NAME
    Params = BrowserParams
    exact_text = True
    edit_fields = PAGE_FIELDS

    def check(self, config: Config) -> None:
        check_browser(config)
        remember(browser_params(config), config.env.reward_threshold, config.env.max_steps)

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        """Pages named by `tasks.kinds` (pages or families), in turn; fewer tasks if the pages have no more scenes. The
        split BLANKED has the tasks of the first held-out split, each shown as a white picture.
        """
        own, first = browser_params(config), config.tasks.test_splits[0]
        further = split in config.tasks.test_splits[1:]
        if further and split == BLANKED:
            return blanked_tasks(self.tasks(config, split=first, seed=config.seed), split=split)
        return page_tasks(
            browser_desk(own),
            (own.other_pages if further else ()) or config.tasks.kinds_of(split),
            count=config.tasks.count(split),
            held_out=config.tasks.held_out(split),
            seed=seed,
            split=split,
            seen=self.shows_images(config),
        )

    def make(self, task: Task, config: Config) -> Environment:
        """An episode in the browser of this process; the episodes of a stage share a pool (`service`)."""
        own = browser_params(config)
        return LonePage(browser_desk(own), scene_of(task), page_view(own), own)

    def service(self, config: Config) -> BrowserService:
        return BrowserService(BrowserPool(browser_params(config)), page_view(browser_params(config)))

    def spreads(self, config: Config) -> bool:
        return True

    def shows_images(self, config: Config) -> bool:
        return browser_params(config).mode == "pixels"

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        if self.shows_images(config):
            form = FORMS[browser_params(config).actions]
            return ScreenPrompt(chat=replace(policy_prompt(config), listed=False), form=form, rules=SCREEN_RULES)
        return policy_prompt(config, rules=RULES)

    def judge_prompt(self, config: Config) -> JudgePrompt:
        if config.judge.prompt == "plain":
            return PlainJudge(repeat_task=config.policy.repeat_task, reasons=("", *REASONS))
        if self.shows_images(config):
            return ScreenJudge(agent=AGENT)
        return judge_prompt(config, rules=AGENT)

    def concurrency(self, config: Config) -> int:
        return PLAYERS

    def demonstrate(self, task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
        scene, view = scene_of(task), page_view(browser_params(config))
        return browser_desk(browser_params(config)).play(
            lambda player: demonstrated_page(player, scene, config, view, seed=seed, random_share=random_share)
        )

    def label(
        self, task: Task, config: Config, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        scene, view = scene_of(task), page_view(browser_params(config))
        return browser_desk(browser_params(config)).play(
            lambda player: PageLabels(player, scene, config, view).of(actions, others=others, rng=random.Random(seed))
        )

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterator[str]:
        if self.shows_images(config):
            return pixel_texts(tasks, browser_params(config), verdicts=self.judge_prompt(config).replies())

        def played(task: Task, number: int) -> Demonstration:
            return self.demonstrate(task, config, seed=number, random_share=0.2)

        return page_texts(tasks, played, verdicts=self.judge_prompt(config).replies())

    def tokenizer_phrases(self, config: Config) -> Sequence[str]:
        return ()

    def course(self, task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
        return page_course(episodes)

    def propose(self, task: Task, *, direction: str, focus: str = "", seed: int, count: int) -> list[str]:
        return drawn_page_edits(task, direction=direction, seed=seed, count=count)

    def proposal_prompt(self) -> ProposalPrompt:
        return PageProposals()

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        return child_of_page(task, edit, root=root, taken=taken, created=created)

    def likeness(self, task: Task) -> str:
        return scene_likeness(scene_of(task))

    def proof(self, config: Config, ask: Ask | None) -> Proof:
        """Children are proven when they are made. This only checks that an episode has enough steps for them."""
        return StepsProof(max_steps=config.env.max_steps)
