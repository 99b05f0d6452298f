"""Checks of episodes: answers have the right types, depend on the actions alone, and withstand hostile actions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from rla.envs.checking.findings import Recorded, Subject, Unsound, other_luck, raised, short
from rla.envs.checking.hostile import ACTIONS, MARK
from rla.envs.checking.trial import Trial, first_difference, trial
from rla.envs.observation import EnvironmentFailure, Observation
from rla.envs.protocols import Demonstrates
from rla.store.records import Task

FREE = ("look", "1", "yes", "42", "print(1)", "<action>go</action>", "I do not know.", "a b c")
NO_ACTION = "what the scheduler sends for a reply without an action"


def random_episode(subject: Subject, task: Task, rng: random.Random) -> Recorded:
    """At most `env.max_steps` random actions: commands where they are offered, other texts where they are not."""
    with trial(subject, task) as game:
        played = Recorded(game.reset())
        while not played.over and len(played.actions) < subject.config.env.max_steps:
            commands = game.commands(played.seen[-1])
            action = rng.choice(commands or FREE)
            try:
                played.add(action, game.step(action))
            except EnvironmentFailure as failure:
                if not commands:
                    break  # it may refuse what it never offered
                raise Unsound(refused_action("offered", action, failure)) from None
    return played


def told_episode(subject: Subject, task: Task, actions: list[str]) -> Recorded:
    """The demonstrated actions, as long as the episode lasts."""
    with trial(subject, task) as game:
        played = Recorded(game.reset())
        for action in actions:
            if played.over:
                break
            try:
                played.add(action, game.step(action))
            except EnvironmentFailure as failure:
                raise Unsound(refused_action("demonstrated", action, failure)) from None
    return played


def refused_action(how: str, action: str, failure: EnvironmentFailure) -> str:
    """The complaint about an action that should be possible."""
    told = "offer what is possible" if how == "offered" else "demonstrate what is possible"
    return f"the {how} command {short(action)} raised {raised(failure)}; {told}"


def demonstrated(subject: Subject, task: Task) -> list[str]:
    """Actions that lead somewhere, where the environment demonstrates any."""
    if not isinstance(subject.env, Demonstrates):
        return []
    return subject.env.demonstrate(task, subject.config, seed=subject.seed, random_share=0.0).actions


def played_of(subject: Subject, task: Task) -> list[Recorded]:
    """An episode of random actions and, where there is one, a demonstrated one. They are played once."""
    if task.task_id not in subject.recorded:
        played = [random_episode(subject, task, subject.rng(task.task_id))]
        if actions := demonstrated(subject, task):
            played.append(told_episode(subject, task, actions))
        subject.recorded[task.task_id] = played
    return subject.recorded[task.task_id]


def episodes(subject: Subject) -> Iterator[tuple[Task, Recorded]]:
    """Those of all tasks."""
    return ((task, played) for task in subject.tasks for played in played_of(subject, task))


def answers_are_observations(subject: Subject) -> Iterator[str]:
    """reset and step answer an Observation whose parts have the right types; won implies done"""
    list(episodes(subject))  # a trial raises Unsound
    return iter(())


def equal_actions_give_equal_answers(subject: Subject) -> Iterator[str]:
    """Equal actions give equal answers, also in two episodes at the same time"""
    for task, played in episodes(subject):
        with other_luck(2), trial(subject, task) as one, trial(subject, task) as other:
            answers = [(one.reset(), other.reset())]
            answers += [(one.step(action), other.step(action)) for action in played.actions]
        for which, told in (("played again", 0), ("played a third time beside the second", 1)):
            if found := first_difference(played.seen, [pair[told] for pair in answers], played.actions):
                yield f"{which}, {found}; draw from a random.Random of the task, and share no state between episodes"


def reset_starts_anew(subject: Subject) -> Iterator[str]:
    """reset starts the same episode again"""
    for task in subject.tasks:
        played = played_of(subject, task)[0]
        try:
            with trial(subject, task) as game:
                game.reset()
                for action in played.actions[:3]:
                    game.step(action)
                again = [game.reset(), *(game.step(action) for action in played.actions)]
        except EnvironmentFailure as failure:
            yield f"a second reset, or a step after it, failed ({short(str(failure))}); forget what was done before"
            return
        if found := first_difference(played.seen, again, played.actions):
            yield f"after a second reset: {found}; forget in reset what was done before"


def steps_after_the_end(subject: Subject) -> Iterator[str]:
    """A step after the end raises EnvironmentFailure or answers done"""
    for task, played in episodes(subject):
        if not played.over:
            continue
        with trial(subject, task) as game:
            game.reset()
            for action in played.actions:
                game.step(action)
            try:
                answer = game.step(played.actions[-1])
            except EnvironmentFailure:
                continue
        if not answer.done:
            yield "a step after the end began the episode anew; raise EnvironmentFailure, or answer done again"


def hostile_actions_are_answered(subject: Subject) -> Iterator[str]:
    """Hostile actions are answered, or raise EnvironmentFailure"""
    if not subject.tasks:
        return
    task, here = subject.tasks[0], Path(MARK)
    marked = here.exists()
    for what, action in ACTIONS.items():
        with trial(subject, task) as game:
            before = game.reset()
            try:
                answer = game.step(action)
            except EnvironmentFailure as failure:
                if what == NO_ACTION and before.commands:
                    said = raised(failure, subject.env)
                    yield f"{short(action)} raised {said}; that is {what}: answer that nothing happens"
                continue
            except Unsound:
                raise
            except Exception as error:  # an environment may raise anything, and to find that out is what this is for
                yield f"{what} ({short(action)}) raised {raised(error, subject.env)}; answer that nothing happens"
                return
            yield from still_playable(game, before, answer, action=action, what=what)
        if here.exists() and not marked:
            yield f"{what} made the file {MARK} here: the action reached a shell; never hand a model's text to one"


def still_playable(game: Trial, before: Observation, answer: Observation, *, action: str, what: str) -> Iterator[str]:
    """Complaints where a command that is offered cannot be taken any more."""
    if answer.done or not before.commands or action in before.commands:
        return
    if not answer.commands:
        yield f"after {what} no command is offered any more, and the episode is not done"
        return
    try:
        game.step(answer.commands[0])
    except EnvironmentFailure as failure:
        yield f"after {what}, the offered command {short(answer.commands[0])} raised {raised(failure)}"


def offered_commands_are_taken(subject: Subject) -> Iterator[str]:
    """Every command that is offered at the start can be taken"""
    for task in subject.tasks[:1]:
        with trial(subject, task) as game:
            commands = game.commands(game.reset())
        for command in subject.rng("taken").sample(commands, min(20, len(commands))):
            with trial(subject, task) as game:
                game.reset()
                try:
                    game.step(command)
                except EnvironmentFailure as failure:
                    yield refused_action("offered", command, failure)


EPISODES = (
    answers_are_observations,
    equal_actions_give_equal_answers,
    reset_starts_anew,
    steps_after_the_end,
    offered_commands_are_taken,
    hostile_actions_are_answered,
)
