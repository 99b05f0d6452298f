"""Games of task payloads, parsed once and shared by all their episodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rla.config import Config
from rla.config.schema import without_effect
from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.alfworld.problem import Game
from rla.envs.alfworld.tasks import game_of
from rla.envs.observation import Environment
from rla.store.records import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class AlfworldParams:
    """Parameters of the ALFWorld environment (`docs/guide/alfworld.md`)."""

    engine: Literal["fast", "textworld"] = "fast"  # plain Python, or the alfworld package's own
    grammar: Literal["file", "packaged"] = "file"  # whose wording: the game file's, or the installed package's
    # What changed tasks are proven in; auto: both where both are installed. Candidates record what it came to.
    verify_engines: Literal["auto", "fast", "both"] = without_effect("auto")
    # Scenes of the training games, such as FloorPlan301, that do not train: they are the split held_out_rooms
    held_out_rooms: tuple[str, ...] = ()


@lru_cache(maxsize=512)
def tables_of(payload: str, packaged: bool = False) -> FastGame:
    """The fast engine's tables of a task's payload."""
    return FastGame(game_of_payload(payload, packaged))


@lru_cache(maxsize=512)
def game_of_payload(payload: str, packaged: bool = False) -> Game:
    """The game of a payload; `packaged` forces the installed package's wording on it."""
    return game_of(payload, force_packaged=packaged)


def household_params(config: Config) -> AlfworldParams:
    """The environment's own parameters."""
    own: AlfworldParams = config.env.own
    return own


def tables_for(task: Task, config: Config) -> FastGame:
    """The tables of a task in the wording that `env.own.grammar` asks for."""
    return tables_of(task.payload, household_params(config).grammar == "packaged")


def engine_of(task: Task, config: Config) -> Environment:
    """An episode in the engine that `env.own.engine` names."""
    if household_params(config).engine == "textworld":
        from rla.envs.alfworld.textworld import StockEngine

        game = game_of_payload(task.payload, household_params(config).grammar == "packaged")
        return StockEngine(game, beside=FastEngine(tables_for(task, config)))
    return FastEngine(tables_for(task, config))
