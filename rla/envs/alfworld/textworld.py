"""The stock engine: the `alfworld` package's TextWorld as an `Environment`.

The stock engine is slow, and the oracle of the fast one. A load takes 1 to 3 s and a step 70 to 120 ms. It is not
thread-safe: engines that play at the same time need a process each. It needs the extra `rla[alfworld]`, which compiles
for some minutes.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rla.envs.alfworld.engine import FastEngine
from rla.envs.alfworld.game import Game, Verbs, check_sentence
from rla.envs.observation import EnvironmentFailure, Observation
from rla.errors import UserError
from rla.plugins import from_checkout

_UNSET_TASK = "UNKNOWN GOAL."
_OLDER = (
    ("You arrive at {r.name}.", "You arrive at {lend.name}."),
    ("You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}."),
    ('template :: "move {o} to {r}"', 'template :: "put {o} in/on {r}"'),
)
_HELP_ACTION = re.compile(r"action help \{.*\Z", re.DOTALL)
_HELP_OPERATOR = re.compile(r"\(:action help\b.*\Z", re.DOTALL)
# The library behind an engine is never unloaded (2 MB each), so closed engines are used again.
_IDLE: list[Any] = []


def import_library() -> list[Any]:
    """The modules textworld, textworld.envs, alfred_tw_env and alfworld.info.

    Raises UserError if the extra is not installed.
    """
    names = ("textworld", "textworld.envs", "alfworld.agents.environment.alfred_tw_env", "alfworld.info")
    try:
        return list(map(import_module, names))
    except ImportError as error:
        raise UserError(
            f"engine: textworld needs {error.name or 'alfworld'}, which is not installed; "
            f"{from_checkout('rla[alfworld]')}, or choose engine: fast"
        ) from error


class StockEngine:
    """`Environment` over TextWorld. Raises UserError without the extra and EnvironmentFailure for a bad game.

    `data`: the content of a game.tw-pddl. `fast`: the fast engine of the same game, which takes the same actions and
    tells the `place` that they lead to; TextWorld does not.
    """

    def __init__(self, data: Mapping[str, Any], *, fast: FastEngine | None = None) -> None:
        self._fast = fast
        if _IDLE:
            self._env: Any = _IDLE.pop()
        else:
            textworld, envs, alfred, _ = import_library()
            infos = textworld.EnvInfos(won=True, admissible_commands=True)
            self._env = alfred.AlfredDemangler(envs.PddlEnv(infos), shuffle=False)
        with _kept_argv():
            try:
                self._env.load(dict(data))
            except (KeyError, SystemExit) as error:
                raise EnvironmentFailure(
                    f"TextWorld cannot load this game ({error!r}); its goal may be out of reach"
                ) from error

    def reset(self) -> Observation:
        with self._failing(), _kept_argv():
            return self._told(self._env.reset(), self._fast.reset() if self._fast else None)

    def step(self, action: str) -> Observation:
        with self._failing():
            state, _, _ = self._env.step(action)
            return self._told(state, self._fast.step(action) if self._fast else None)

    def _told(self, state: Any, fast: Observation | None) -> Observation:
        won, commands = bool(state["won"]), tuple(state.admissible_commands)
        place = fast.place if fast else None
        return Observation(text=state.feedback, commands=commands, won=won, done=won, place=place)

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


def game_data(game: Game) -> dict[str, Any]:
    """The content of a game.tw-pddl that plays `game`.

    Domain and grammar are the packaged ones. The older dialect is the packaged one with some sentences replaced.
    """
    info = import_library()[-1]
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
