"""Demonstrations and labels of steps from the scripts of tasks, in the real applications.

A label says whether the script still wins after an action: the rest of the script is played from there, on a new
machine that the same actions have brought to the same state. +1 for the script's next action, and for any action that
changes the screen and after which the rest of the script wins; -1 for every other action. Each label of an action
outside the script costs an episode.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rla.config import Config
from rla.envs.protocols import Demonstration, Labelled
from rla.errors import UserError
from rla.store.records import Task
from rla_screens.desktop.episode import DesktopService
from rla_screens.desktop.params import desktop_params
from rla_screens.desktop.playing import PlayedScript, on_machines, play_script
from rla_screens.desktop.scenarios import scenario_of
from rla_screens.screens.deeds import Motion
from rla_screens.screens.forms import FORMS, deed_of_action

IDLE = "noop(100)"  # a random action of demonstrations: it loses time and does no harm
HELPS, USELESS, SPOILS = "it brings the task forward", "nothing changes", "the task cannot be finished as before"
SCRIPT_REASONS = (HELPS, USELESS, SPOILS)


def _script_of(task: Task) -> tuple[str, ...]:
    """Raises UserError if the task has no script."""
    script = scenario_of(task).solution
    if not script:
        raise UserError(f"task {task.task_id} has no script; set warm_start.enabled to false for tasks of others")
    return script


def demonstrated_desktop(task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
    """The script, with idle steps in between according to `random_share`."""
    rng, form = random.Random(seed), FORMS[desktop_params(config).actions]
    script, actions = _script_of(task), list[str]()
    spare = config.env.max_steps - len(script)
    for action in script:
        if spare > 0 and rng.random() < random_share:
            actions.append(IDLE)
            spare -= 1
        actions.append(action)
    written = [shown_action(form.name, action) for action in actions]
    threshold = config.env.reward_threshold
    played = on_machines(
        desktop_params(config), lambda service: play_script(service, task, written, threshold=threshold)
    )
    return demonstration_of(played)


def shown_action(form: str, action: str) -> str:
    """An action of a script as an episode of that form has it."""
    deed = deed_of_action(action)
    if form != "short" or deed is None:
        return action
    try:
        return FORMS["short"].action(deed)
    except ValueError:
        return action


def demonstration_of(played: PlayedScript) -> Demonstration:
    texts = [one.text for one in played.seen]
    return Demonstration(
        observations=texts[:-1],
        commands=[()] * len(played.actions),
        actions=list(played.actions),
        final_observation=texts[-1],
        won=played.won,
        images=[one.images for one in played.seen],
    )


def labelled_desktop(
    task: Task, config: Config, actions: Sequence[str], *, others: int, seed: int
) -> list[list[Labelled]]:
    """For each step the label of the action taken, and of one of `others`: idling, which never helps. Empty for a task
    without a script, because nothing else tells which actions help. Stages that read labels skip such tasks.
    """
    if not scenario_of(task).solution:
        return []
    threshold = config.env.reward_threshold
    return on_machines(
        desktop_params(config),
        lambda service: labels_by_replay(service, task, actions, others=others, threshold=threshold),
    )


async def labels_by_replay(
    service: DesktopService, task: Task, actions: Sequence[str], *, others: int, threshold: float
) -> list[list[Labelled]]:
    script, done = list(_script_of(task)), 0
    seen = (await play_script(service, task, actions, threshold=threshold)).seen
    labels: list[list[Labelled]] = []
    for number, action in enumerate(actions):
        if number + 1 >= len(seen):
            break
        before, after = seen[number], seen[number + 1]
        if done < len(script) and _same_deed(action, script[done]):
            score, reason, done = 1, HELPS, done + 1
        elif before.images == after.images and not after.done:
            score, reason = -1, USELESS
        else:
            won = after.success(threshold)
            if not after.done:
                rest = [*actions[: number + 1], *script[done:]]
                won = (await play_script(service, task, rest, threshold=threshold)).won
            score, reason = (1, HELPS) if won else (-1, SPOILS)
        taken = Labelled(
            action=action, next_observation=after.text, next_images=after.images, score=score, reason=reason
        )
        labels.append([taken])
        if others and not _same_deed(action, IDLE):
            waited = Labelled(
                action=IDLE, next_observation=before.text, next_images=before.images, score=-1, reason=USELESS
            )
            labels[-1].append(waited)
    return labels


def _same_deed(one: str, other: str) -> bool:
    """Whether two actions do the same, however they are written."""
    first, second = deed_of_action(one), deed_of_action(other)
    waits = first is not None and second is not None and first.motion is second.motion is Motion.WAIT
    return one == other or waits or (first is not None and first == second)
