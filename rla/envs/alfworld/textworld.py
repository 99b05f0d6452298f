"""The stock engine: the `alfworld` package's TextWorld as an `Environment`, proofs in it, and tasks as its game files.

The stock engine is slow, and the oracle of the fast one. A load takes 1 to 3 s and a step 70 to 120 ms. It is not
thread-safe: engines that play at the same time need a process each. It needs the extra `rla[alfworld]`, which compiles
for some minutes.

A game file that speaks the game's dialect decides domain and grammar. Otherwise the packaged ones do; the older dialect
is the packaged one with the sentences that differ replaced.

`export_games` writes `<folder>/<split>/<kind>-<object>-None-<target>-<scene>/trial_<task id>/` with game.tw-pddl,
traj_data.json and initial_state.pddl, as `AlfredTWEnv` collects them from a data folder.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rla.config import Config, resolved
from rla.envs.alfworld.engine import NOTHING_HAPPENS, FastEngine, FastGame, tables_of
from rla.envs.alfworld.game import Game, Verbs, check_sentence, game_of, read_grammar
from rla.envs.alfworld.goals import TaskKind
from rla.envs.alfworld.solver import solve
from rla.envs.observation import AwaitedEnvironment, EnvironmentFailure, Observation
from rla.envs.pool import EnvironmentPool
from rla.errors import UserError
from rla.plugins import from_checkout
from rla.store.records import Task

_UNSET_TASK = "UNKNOWN GOAL."
_OLDER = (
    ("You arrive at {r.name}.", "You arrive at {lend.name}."),
    ("You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}."),
    ('template :: "move {o} to {r}"', 'template :: "put {o} in/on {r}"'),
)
_HELP_ACTION = re.compile(r"action help \{.*\Z", re.DOTALL)
_HELP_OPERATOR = re.compile(r"\(:action help\b.*\Z", re.DOTALL)
_PATH_PART = re.compile(r"[A-Za-z0-9_]{1,80}", re.ASCII)
# The library behind an engine is never unloaded (2 MB each), so closed engines are used again.
_IDLE: list[Any] = []
_DEADLINE_S = 600.0  # of a proof, at least: a refusal is stored, and a busy machine is not a reason for one


def import_library() -> tuple[Any, Any, Any]:
    """The modules that an engine is made of. Raises UserError if the extra is not installed."""
    names = ("textworld", "textworld.envs", "alfworld.agents.environment.alfred_tw_env")
    textworld, envs, alfred = map(_import, names)
    return textworld, envs, alfred


def _import(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(
            f"engine: textworld needs {error.name or module}, which is not installed; "
            f"{from_checkout('rla[alfworld]')}, or choose engine: fast"
        ) from error


class StockEngine:
    """`Environment` over TextWorld. Raises UserError without the extra and EnvironmentFailure for a bad game.

    `beside`: the fast engine of the same game, which takes the same actions and tells the `place` that they lead to;
    TextWorld does not.
    """

    def __init__(self, game: Game, *, source: Path | None = None, beside: FastEngine | None = None) -> None:
        self._beside = beside
        self._tables = FastGame(game) if game.withheld else None
        self._seen: Observation | None = None
        if _IDLE:
            self._env: Any = _IDLE.pop()
        else:
            textworld, envs, alfred = import_library()
            infos = textworld.EnvInfos(won=True, admissible_commands=True)
            self._env = alfred.AlfredDemangler(envs.PddlEnv(infos), shuffle=False)
        with _kept_argv():
            try:
                self._env.load(game_data(game, source=source))
            except (KeyError, SystemExit) as error:
                raise EnvironmentFailure(
                    f"{source or game.problem.name}: TextWorld cannot load this game ({error!r}); "
                    "its goal may be out of reach"
                ) from error

    def reset(self) -> Observation:
        with self._failing(), _kept_argv():
            return self._told(self._env.reset(), self._beside.reset() if self._beside else None)

    def step(self, action: str) -> Observation:
        if self._seen is not None and self._tables is not None and not self._tables.allows(action.strip()):
            return replace(self._seen, text=NOTHING_HAPPENS)
        with self._failing():
            state, _, _ = self._env.step(action)
            return self._told(state, self._beside.step(action) if self._beside else None)

    def _told(self, state: Any, beside: Observation | None) -> Observation:
        won, commands = bool(state["won"]), tuple(state.admissible_commands)
        if self._tables is not None:  # TextWorld knows nothing of withheld commands
            commands = tuple(filter(self._tables.allows, commands))
        place = beside.place if beside else None
        self._seen = Observation(text=state.feedback, commands=commands, won=won, done=won, place=place)
        return self._seen

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Errors of the library end this episode and no other; an engine that failed is not used again."""
        try:
            yield
        except Exception as error:
            self._env = None
            raise EnvironmentFailure(f"TextWorld failed: {error!r}") from error

    def close(self) -> None:
        """Hand the library back for the next engine of this process."""
        if self._env is not None:
            _IDLE.append(self._env)
            self._env = None


@contextlib.contextmanager
def _kept_argv() -> Iterator[None]:
    """Fast Downward's translator overwrites `sys.argv`."""
    argv = sys.argv
    try:
        yield
    finally:
        sys.argv = argv


def game_data(game: Game, *, source: Path | None = None) -> dict[str, Any]:
    """The content of a `game.tw-pddl` that plays `game` in TextWorld."""
    if source is not None:
        data: dict[str, Any] = json.loads(source.read_bytes())
        if read_grammar(data["grammar"])[1] is game.verbs:
            return data
    info = _import("alfworld.info")
    domain, grammar = Path(info.ALFRED_PDDL_PATH).read_text(), Path(info.ALFRED_TWL2_PATH).read_text()
    if game.verbs is Verbs.PUT:
        for packaged, older in _OLDER:
            grammar = grammar.replace(packaged, older)
        grammar = _HELP_ACTION.sub("", grammar)
        sink = "(receptacleType ?r SinkType)"
        domain = _HELP_OPERATOR.sub(")", domain).replace(f";{sink}", sink)
    grammar = grammar.replace(_UNSET_TASK, check_sentence(game.sentence))
    return {
        "pddl_domain": domain,
        "grammar": grammar,
        "solvable": True,
        "pddl_problem": game.problem.pddl(),
    }


class EngineProof:
    """`rla.envs.protocols.Proof`: a changed task's plan wins in the fast engine, and in the stock engine as well if
    `env.own.verify_engines` asks for it.

    The second proof replays the plan in a process of its own. It takes seconds, so it comes last, and an engine that
    dies refuses that task only. Raises UserError if `both` asks for an engine that is not installed.
    """

    def __init__(self, config: Config, plan_of: Callable[[FastGame], list[str] | None] = solve) -> None:
        wanted = config.env.own.verify_engines
        installed = all(find_spec(name) is not None for name in ("alfworld", "textworld"))
        remedy = from_checkout("rla[alfworld]")
        if wanted == "both" and not installed:
            raise UserError(f"env.own.verify_engines: both needs the stock engine; {remedy}, or set it to auto")
        self._second = installed and wanted != "fast"
        self.proven_in: tuple[str, ...] = ("fast", "textworld") if self._second else ("fast",)
        self.remark = ""
        if wanted == "auto" and not installed:
            self.remark = f"no second engine is installed, so tasks are proven in the fast engine alone; {remedy}"
        self._plan_of = plan_of
        own = replace(config.env.own, engine="textworld")
        self._config = replace(config, env=replace(config.env, own=own))
        self._stack = ExitStack()
        self._pool: EnvironmentPool | None = None

    async def __call__(self, task: Task) -> str:
        """The reason why the stock engine refuses the task, empty if it does not or is not asked."""
        if not self._second:
            return ""
        if self._pool is None:
            deadline = max(self._config.pool.step_deadline_s, _DEADLINE_S)
            pool = EnvironmentPool(resolved(self._config), workers=1, busy=1, deadline_s=deadline)
            self._pool = self._stack.enter_context(pool)
        environment = self._pool.environment(task)
        try:
            tables = tables_of(task.payload, packaged=self._config.env.own.grammar == "packaged")
            return await refusal(environment, self._plan_of(tables) or [])
        finally:
            environment.close()

    async def close(self) -> None:
        """End the process."""
        self._stack.close()


async def refusal(environment: AwaitedEnvironment, plan: list[str]) -> str:
    """The reason why the plan does not win with its last command and not before, empty if it does."""
    try:
        seen = await environment.reset()
        if seen.won:
            return "the stock engine: the goal is already true at the start"
        for number, command in enumerate(plan, 1):
            if command not in seen.commands:
                return f"the stock engine: step {number} of the plan is not admissible"
            seen = await environment.step(command)
            if seen.won != (number == len(plan)):
                return f"the stock engine: the plan {'wins early' if seen.won else 'does not win'}"
    except EnvironmentFailure as failure:
        return f"the stock engine: {failure}"
    return ""


def export_games(tasks: Iterable[Task], folder: Path) -> int:
    """Write a game per task below `folder`, in place of existing files of the same task, and return their number.

    Raises UserError if the extra is not installed, a name cannot be part of a path, or a task withholds commands, which
    a game file cannot express.
    """
    count = 0
    for task in tasks:
        game = game_of(task.payload)
        goal, scene = game.problem.goal, task.scene.removeprefix("FloorPlan")  # ALFRED's folders name it by its number
        if game.withheld:
            raise UserError(f"task {task.task_id} withholds commands, which a game.tw-pddl cannot say; leave it out")
        words = (goal.kind.value, goal.object_type, "None", goal.target_type, scene)
        for part in (task.split, task.task_id, *words):
            if not _PATH_PART.fullmatch(part):
                raise UserError(
                    f"task {task.task_id!r}: {part!r} cannot be part of a path; use letters, digits and '_'"
                )
        looks = goal.kind is TaskKind.LOOK
        trajectory = {
            "task_id": f"trial_{task.task_id}",
            "task_type": goal.kind.value,
            "pddl_params": {
                "object_target": goal.object_type,
                "parent_target": "" if looks else goal.target_type,
                "toggle_target": goal.target_type if looks else "",
                "mrecep_target": "",
                "object_sliced": False,
            },
            "scene": {"floor_plan": task.scene, "scene_num": scene},
            "turk_annotations": {"anns": [{"task_desc": game.sentence}]},
            "alfworld_task": game.sentence,
        }
        data = game_data(game)
        place = folder / task.split / "-".join(words) / f"trial_{task.task_id}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "game.tw-pddl").write_text(json.dumps(data))
        (place / "traj_data.json").write_text(json.dumps(trajectory, indent=1))
        (place / "initial_state.pddl").write_text(game.problem.pddl())
        count += 1
    return count
