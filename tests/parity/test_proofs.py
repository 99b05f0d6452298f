"""The second proof: what the fast engine has proven wins in the stock engine, and a plan that does not is refused."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import pytest

from rla.adaptation.verify import engines, replays
from rla.config import Config
from rla.config.sections import AdaptationConfig, EnvConfig
from rla.envs.alfworld.environment import AlfworldSetting
from rla.envs.alfworld.tasks import builtin_tasks
from rla.store.records import Task

CONFIG = Config(adaptation=AdaptationConfig(verify_engines="both"))

pytestmark = pytest.mark.skipif(
    find_spec("alfworld") is None, reason="needs the stock engine: pip install 'rla[alfworld]'"
)


class Hasty(AlfworldSetting):
    """Its plans stop before the last command."""

    def solution(self, task: Task, config: EnvConfig) -> list[str]:
        return super().solution(task, config)[:-1]


def child(editor: AlfworldSetting) -> Task:
    parent = builtin_tasks(seed=3, scenes=1, tasks_per_scene=1, size="tiny", kinds=["place"])[0]
    edits = editor.propose(parent, direction="harder", critique="", seed=0, count=1)
    return editor.apply(parent, edits[0], root=parent, taken=(), created=1)


@pytest.mark.parametrize(("editor", "reason"), [(AlfworldSetting(), ""), (Hasty(), "does not win")])
def test_a_changed_task_is_replayed_in_the_stock_engine(editor: AlfworldSetting, reason: str) -> None:
    assert engines(CONFIG, editor) == ["fast", "textworld"]
    changed = child(editor)
    with replays(CONFIG, editor) as replay:
        assert replay is not None
        found = asyncio.run(replay(changed))
    assert reason in found and bool(found) is bool(reason)
