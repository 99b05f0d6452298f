"""What answers vote in, where an environment says so (`Answers`).

    estimator   a vote is
    unbiased    the class of the answer, as the environment sees it: equal answers are one class
    published   the text that was compared, as it is: `Predicts` says which, elsewhere it is the action

An action that could not be read or was cut has no vote, unless `Predicts` finds one in what was said before.
"""

from __future__ import annotations

from collections.abc import Iterable

from rla.config import Config
from rla.envs.protocols import Answers, Predicts
from rla.envs.registry import environment
from rla.metrics.success import ClassOf, SaidEpisode
from rla.store.records import Task


def class_of_answers(config: Config, tasks: Iterable[Task]) -> ClassOf | None:
    """What an episode of one of `tasks` votes for; nothing where answers of this environment have no classes."""
    chosen = environment(config.env.name)
    if not isinstance(chosen, Answers):
        return None
    known, answers = {task.task_id: task for task in tasks}, chosen
    published = config.evaluation.estimator == "published"

    def class_of(said: SaidEpisode) -> str | None:
        task = known.get(said.task_id)
        if task is None:
            return None
        if published and isinstance(answers, Predicts):
            return answers.prediction(task, config, said.actions, said.answers, ended=said.ended)
        if not said.ended:
            return None
        return said.actions[-1] if published else answers.answer(task, config, said.actions[-1])

    return class_of
