"""The stock engine: the `alfworld` package's TextWorld behind our protocol, and tasks as game files that it plays.

The engine is slow, and the fast one's oracle. A load takes 1 to 3 s and a step 70 to 120 ms. It is not thread-safe: one
process per engine that plays at the same time. Needs the extra `rla[alfworld]`, which compiles for some minutes.

The game's own file decides domain and grammar where it is given and speaks the game's dialect; otherwise the
packaged ones do, and the older dialect is the packaged one with the sentences in which they differ put back.

`export_games` writes `<folder>/<split>/<kind>-<object>-None-<target>-<scene>/trial_<task id>/` with game.tw-pddl,
traj_data.json and initial_state.pddl, as `AlfredTWEnv` collects them from a data folder. Every part of a path is
checked against a whitelist of signs.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.envs.alfworld.engine import NOTHING_HAPPENS, FastEngine, FastGame
from rla.envs.alfworld.problem import Game, TaskKind, Verbs, check_sentence, read_grammar, render_problem
from rla.envs.alfworld.tasks import game_of
from rla.envs.observation import EnvironmentFailure, Observation
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
# The library behind an engine is never unloaded (2 MB each), so closed ones are used again.
_IDLE: list[Any] = []


class StockEngine:
    """`Environment` over TextWorld. `UserError` where the extra is missing, `EnvironmentFailure` for a bad game.

    `beside`: the fast engine of the same game. It takes the same actions and says what place that leads to, which
    TextWorld's answers do not.
    """

    def __init__(self, game: Game, *, source: Path | None = None, beside: FastEngine | None = None) -> None:
        self._beside = beside
        self._offer = FastGame(game).offer if game.withheld else None
        self._seen: Observation | None = None
        self._env: Any = _IDLE.pop() if _IDLE else _new_env()
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
            return self._told(_observation(self._env.reset(), self._beside.reset().place if self._beside else None))

    def step(self, action: str) -> Observation:
        if self._seen is not None and self._offer is not None and not self._offer.allows(action.strip()):
            return replace(self._seen, text=NOTHING_HAPPENS)
        with self._failing():
            state, _, _ = self._env.step(action)
            return self._told(_observation(state, self._beside.step(action).place if self._beside else None))

    def _told(self, seen: Observation) -> Observation:
        """Without the commands that the game withholds: TextWorld knows nothing of that."""
        if self._offer is not None:
            seen = self._seen = replace(seen, commands=tuple(filter(self._offer.allows, seen.commands)))
        return seen

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever the library raises ends this episode and no other; an engine that failed is not used again."""
        try:
            yield
        except Exception as error:
            self._env = None
            raise EnvironmentFailure(f"TextWorld failed: {error!r}") from error

    def close(self) -> None:
        """Hands the library back for the next engine of this process."""
        if self._env is not None:
            _IDLE.append(self._env)
            self._env = None


def game_data(game: Game, *, source: Path | None = None) -> dict[str, Any]:
    """The content of a `game.tw-pddl` that plays `game` in TextWorld."""
    data = json.loads(source.read_bytes()) if source is not None else None
    if data is None or read_grammar(data["grammar"])[1] is not game.verbs:
        domain, grammar = _packaged(game.verbs)
        data = {"pddl_domain": domain, "grammar": _with_task(grammar, game.sentence), "solvable": True}
        data["pddl_problem"] = render_problem(game.problem)
    return data


def _packaged(verbs: Verbs) -> tuple[str, str]:
    info = _import_alfworld("alfworld.info")
    domain, grammar = Path(info.ALFRED_PDDL_PATH).read_text(), Path(info.ALFRED_TWL2_PATH).read_text()
    if verbs is Verbs.PUT:
        for packaged, older in _OLDER:
            grammar = grammar.replace(packaged, older)
        grammar = _HELP_ACTION.sub("", grammar)
        domain = _HELP_OPERATOR.sub(")", domain).replace(
            ";(receptacleType ?r SinkType)", "(receptacleType ?r SinkType)"
        )
    return domain, grammar


def _with_task(grammar: str, sentence: str) -> str:
    return grammar.replace(_UNSET_TASK, check_sentence(sentence))


def import_library() -> tuple[Any, Any, Any]:
    """The modules that an engine is made of. Raises UserError where the extra is missing."""
    names = ("textworld", "textworld.envs", "alfworld.agents.environment.alfred_tw_env")
    textworld, envs, alfred = (_import_alfworld(name) for name in names)
    return textworld, envs, alfred


def _new_env() -> Any:
    textworld, envs, alfred = import_library()
    infos = textworld.EnvInfos(won=True, admissible_commands=True)
    return alfred.AlfredDemangler(envs.PddlEnv(infos), shuffle=False)


def _import_alfworld(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(
            f"engine: textworld needs {error.name or module}, which is not installed; "
            f"{from_checkout('rla[alfworld]')}, or choose engine: fast"
        ) from error


def _observation(state: Any, place: str | None) -> Observation:
    won = bool(state["won"])
    commands = tuple(state.admissible_commands)
    return Observation(text=state.feedback, commands=commands, won=won, done=won, place=place)


@contextlib.contextmanager
def _kept_argv() -> Iterator[None]:
    """Fast Downward's translator overwrites `sys.argv`."""
    argv = sys.argv
    try:
        yield
    finally:
        sys.argv = argv


_SAFE = re.compile(r"[A-Za-z0-9_]{1,80}", re.ASCII)


def export_games(tasks: Iterable[Task], folder: Path) -> int:
    """Writes one game per task below `folder` and says how many; existing files of the same task are
    replaced.

    Raises `UserError` when the extra that brings `alfworld` is missing, a name cannot be part of a path, or a task
    withholds commands, which a game's file cannot say.
    """
    count = 0
    for task in tasks:
        game = game_of(task.payload)
        if game.withheld:
            raise UserError(f"task {task.task_id} withholds commands, which a game.tw-pddl cannot say; leave it out")
        place = folder.joinpath(*_parts(task, game))
        data = {**game_data(game), "solvable": True}
        place.mkdir(parents=True, exist_ok=True)
        (place / "game.tw-pddl").write_text(json.dumps(data))
        (place / "traj_data.json").write_text(json.dumps(trajectory_data(task, game), indent=1))
        (place / "initial_state.pddl").write_text(render_problem(game.problem))
        count += 1
    return count


def trajectory_data(task: Task, game: Game) -> dict[str, Any]:
    """What ALFWorld's task templates and its handcoded expert read from traj_data.json."""
    goal = game.problem.goal
    looks = goal.kind is TaskKind.LOOK
    return {
        "task_id": f"trial_{task.task_id}",
        "task_type": goal.kind.value,
        "pddl_params": {
            "object_target": goal.object_type,
            "parent_target": "" if looks else goal.target_type,
            "toggle_target": goal.target_type if looks else "",
            "mrecep_target": "",
            "object_sliced": False,
        },
        "scene": {"floor_plan": task.scene, "scene_num": _scene_name(task)},
        "turk_annotations": {"anns": [{"task_desc": game.sentence}]},
        "alfworld_task": game.sentence,
    }


def _parts(task: Task, game: Game) -> tuple[str, str, str]:
    goal = game.problem.goal
    words = (goal.kind.value, goal.object_type, "None", goal.target_type, _scene_name(task))
    for part in (task.split, task.task_id, *words):
        if not _SAFE.fullmatch(part):
            raise UserError(f"task {task.task_id!r}: {part!r} cannot be part of a path; use letters, digits and '_'")
    return task.split, "-".join(words), f"trial_{task.task_id}"


def _scene_name(task: Task) -> str:
    """ALFRED's folders name a scene by its number alone."""
    return task.scene.removeprefix("FloorPlan")
