"""Web pages as the stages see them: MiniWoB++ in a real Chromium, as text or as pixels (`docs/guide/browser.md`)."""

from __future__ import annotations

from rla.config import Config
from rla.envs.browser.browsers import BrowserPool
from rla.envs.browser.desk import browser_desk
from rla.envs.browser.episode import BrowserService, BrowserView
from rla.envs.browser.lone import LonePage
from rla.envs.browser.params import BrowserParams, browser_params
from rla.envs.browser.pixel_view import PixelView
from rla.envs.browser.scenes import scene_of
from rla.envs.browser.tasks import NAME, page_tasks
from rla.envs.browser.text_view import TextView
from rla.envs.chat_prompts import judge_prompt, policy_prompt
from rla.envs.observation import Environment
from rla.envs.prompts import JudgePrompt, PolicyPrompt
from rla.envs.screens.forms import FORMS
from rla.envs.screens.prompts import ScreenJudge, ScreenPrompt
from rla.store.records import Task

RULES = (
    'You use a web page. Each line is an element with its number, or a text. Commands: click N, type "words" in N, '
    'select "option" in N, press Enter, drag N to M, and done, which ends the task.'
)
SCREEN_RULES = "You use a web page by mouse and keyboard. You see it in screenshots."
AGENT = "an agent that uses a web page"


class BrowserPages:
    """The pages of MiniWoB++."""

    name = NAME
    Params = BrowserParams

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        """Pages of `tasks.kinds`, in turn, by names of pages or families; fewer where pages have no more scenes."""
        return page_tasks(
            browser_desk(browser_params(config)),
            config.tasks.kinds_of(split),
            count=config.tasks.count(split),
            held_out=config.tasks.held_out(split),
            seed=seed,
            split=split,
        )

    def make(self, task: Task, config: Config) -> Environment:
        """An episode in the browser of this process; the episodes of a stage share a pool (`service`)."""
        return LonePage(browser_desk(browser_params(config)), scene_of(task), view_of(config), browser_params(config))

    def service(self, config: Config) -> BrowserService:
        return BrowserService(BrowserPool(browser_params(config)), view_of(config))

    def shows_images(self, config: Config) -> bool:
        return browser_params(config).mode == "pixels"

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        if self.shows_images(config):
            form = FORMS[browser_params(config).actions]
            return ScreenPrompt(chat=policy_prompt(config), form=form, rules=SCREEN_RULES)
        return policy_prompt(config, rules=RULES)

    def judge_prompt(self, config: Config) -> JudgePrompt:
        if self.shows_images(config) and config.judge.prompt == "published":
            return ScreenJudge(agent=AGENT)
        return judge_prompt(config, rules=AGENT)


def view_of(config: Config) -> BrowserView:
    """How the mode shows pages."""
    own = browser_params(config)
    return PixelView(own=own) if own.mode == "pixels" else TextView()
