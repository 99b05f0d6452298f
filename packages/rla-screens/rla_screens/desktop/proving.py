"""Scripts against verifiers, in the real applications, to prove that a task can be won and is not won by default.

A scene of ours is sound if for each of its verifiers the script wins and doing nothing does not, and if none of its
wrong ends wins. A changed task is proven by the same two runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from rla.envs.observation import EnvironmentFailure
from rla.store.records import Task
from rla_screens.desktop.episode import DesktopService
from rla_screens.desktop.params import DesktopParams
from rla_screens.desktop.playing import play_script
from rla_screens.desktop.scenarios import Scenario, scenario_of, task_of_scenario
from rla_screens.desktop.tasks import asked_otherwise

NOTHING = ("done()",)
FULL = 1.0  # score


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRun:
    """`wanted`: whether the script has to win; `won`: whether it did; `flaw`: why it did not end."""

    scene: str
    what: str
    wanted: bool
    won: bool | None
    flaw: str = ""

    @property
    def sound(self) -> bool:
        return self.won is self.wanted


async def script_runs(service: DesktopService, scenario: Scenario) -> AsyncIterator[ScriptRun]:
    """All runs of a scene, one after the other. If the score is the reward, only a full score counts as a win."""
    for name in scenario.verifiers:
        asked = asked_otherwise(scenario, name)
        yield await _script_run(service, asked, asked.solution, what=f"{name} solved", wanted=True)
        yield await _script_run(service, asked, NOTHING, what=f"{name} nothing done", wanted=False)
    for number, script in enumerate(scenario.wrong, start=1):
        yield await _script_run(service, scenario, script, what=f"wrong end {number}", wanted=False)


async def _script_run(
    service: DesktopService, scenario: Scenario, script: tuple[str, ...], *, what: str, wanted: bool
) -> ScriptRun:
    task = task_of_scenario(scenario, split="train")
    try:
        played = await play_script(service, task, script, threshold=FULL)
    except EnvironmentFailure as failure:
        return ScriptRun(scene=scenario.id, what=what, wanted=wanted, won=None, flaw=str(failure))
    return ScriptRun(scene=scenario.id, what=what, wanted=wanted, won=played.won)


class DesktopProof:
    """`rla.envs.protocols.Proof`. A task whose verifier has no script keeps its verifier. Then only the words of its
    instruction have changed, and it remains to show that doing nothing does not win.
    """

    def __init__(self, own: DesktopParams, *, max_steps: int, threshold: float) -> None:
        self._service = DesktopService(own)
        self._max_steps, self._threshold = max_steps, threshold

    async def __call__(self, task: Task) -> str:
        """The reason for refusing the task; empty if it is proven."""
        scenario = scenario_of(task)
        script = scenario.solution
        actions = [action for action in script if action not in ("done()", "fail()")]
        if len(actions) > self._max_steps:
            return f"its script needs {len(actions)} steps, and env.max_steps is {self._max_steps}"
        try:
            if await self._wins(task, NOTHING):
                return "it is won by doing nothing"
            if script and not await self._wins(task, script):
                return "its script does not win it"
        except EnvironmentFailure as failure:
            return f"it could not be proven: {failure}"
        return ""

    async def _wins(self, task: Task, script: tuple[str, ...]) -> bool:
        return (await play_script(self._service, task, script, threshold=self._threshold)).won

    async def close(self) -> None:
        await self._service.close()
