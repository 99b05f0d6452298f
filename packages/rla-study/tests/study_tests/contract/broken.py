"""The example environment with one part replaced: environments that are each broken in one way."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla_study.contract import check_environment

from rla.config import Config
from rla.config.sections import EnvConfig, TasksConfig

EXAMPLE = Path(__file__).parents[5] / "examples/guess-number/guess_number.py"
spec = importlib.util.spec_from_file_location("guess_number", EXAMPLE)
assert spec is not None and spec.loader is not None
guess_number = sys.modules.setdefault("guess_number", importlib.util.module_from_spec(spec))
spec.loader.exec_module(guess_number)
Game, GuessNumber = guess_number.Game, guess_number.GuessNumber

SMALL = TasksConfig(train_scenes=3, test_scenes=2, tasks_per_scene=2)


def config_of(env: Any, **changes: Any) -> Config:
    own = changes.pop("own", None) or env.Params()
    base = Config(env=EnvConfig(name="guess-number", max_steps=6, own=own), tasks=SMALL)
    return replace(base, **changes)


def broken(env: Any, config: Config | None = None) -> dict[str, str]:
    """check -> complaint, of what is found to be broken."""
    findings = check_environment(env, config or config_of(env), episodes=2, seed=0)
    return {finding.check: finding.broken for finding in findings if not finding.ok}


def with_game(**members: Callable[..., Any]) -> Any:
    """The example with other methods of its episodes. Each is called with the game, so `Game.step(game, ...)` is the
    one that it replaces.
    """
    game = type("Other", (Game,), members)
    return type("Env", (GuessNumber,), {"make": lambda self, task, config: game(task)})()


def with_members(**members: Any) -> Any:
    return type("Env", (GuessNumber,), members)()


def complaints_of(env: Any, *parts: str) -> None:
    """Some complaint has these parts."""
    found = broken(env)
    assert any(all(part in complaint for part in parts) for complaint in found.values()), found


def the_only_complaint(env: Any, config: Config | None = None) -> str:
    found = broken(env, config)
    assert len(found) == 1, found
    return next(iter(found.values()))
