"""Episodes of the expert, in which a share of the actions is drawn at random, and actions for a judge to compare."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rla.config import Config
from rla.envs.alfworld.engine import FastEngine
from rla.envs.alfworld.expert import Expert
from rla.envs.alfworld.games import tables_for
from rla.envs.observation import offered
from rla.envs.views import Demonstration, Labelled
from rla.store.records import Task

WAYS = 6  # commands that go somewhere, of those that a judge may learn on beside the action taken


def expert_episode(task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
    """The expert's episode in the fast engine, at most `env.max_steps` long."""
    rng = random.Random(seed)
    expert = Expert(seed=seed)
    engine = FastEngine(tables_for(task, config))
    observation = engine.reset()
    observations: list[str] = []
    commands: list[tuple[str, ...]] = []
    actions: list[str] = []
    for _ in range(config.env.max_steps):
        shown = offered(observation.commands, config.env.omit_commands)
        action = expert.act(observation.text, observation.commands)
        follow = rng.random() >= random_share and action in shown
        if not follow:
            action = random_action(rng, shown)
            expert.notice(action)
        observations.append(observation.text)
        commands.append(shown)
        actions.append(action)
        observation = engine.step(action)
        if observation.won:
            break
    return Demonstration(
        observations=observations,
        commands=commands,
        actions=actions,
        final_observation=observation.text,
        won=observation.won,
    )


def random_action(rng: random.Random, among: Sequence[str]) -> str:
    """A command of a verb drawn first: uniform over commands, most would be `go to`."""
    verb = rng.choice(sorted({command.split(" ", 1)[0] for command in among}))
    return rng.choice([command for command in among if command.split(" ", 1)[0] == verb])


def to_compare(rng: random.Random, commands: Sequence[str]) -> list[str]:
    """All commands but those that go somewhere, of which there are too many to label: a few of them."""
    going = [command for command in commands if command.startswith("go to ")]
    return [c for c in commands if not c.startswith("go to ")] + sorted(rng.sample(going, min(WAYS, len(going))))


def contrast(rng: random.Random, labelled: Sequence[Labelled], count: int) -> list[Labelled]:
    """Up to `count` of them in pairs: one that helps, and one of the same verb that does not, where there are such.

    Drawn evenly, nine of ten that take something take the wrong thing, and a judge learns that to take is wrong.
    """
    left = list(labelled)
    kept: list[Labelled] = []
    while left and len(kept) < count:
        wanted = 1 if len(kept) % 2 == 0 else -1
        verb = kept[-1].action.split(" ", 1)[0] if wanted < 0 else ""
        found = [one for one in left if one.score == wanted]
        near = [one for one in found if one.action.split(" ", 1)[0] == verb] or found or left
        names = [one.action for one in near]
        chosen = near[names.index(random_action(rng, names))]
        left.remove(chosen)
        kept.append(chosen)
    return kept
