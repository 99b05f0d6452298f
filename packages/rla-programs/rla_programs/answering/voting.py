"""Figures for k answers to a held-out question (`rla_programs.answering.at_k`), and the votes of answers, if an
environment defines them (`Answers`).

    estimator   a vote is
    unbiased    the class of the answer, as the environment defines it: equal answers are one class
    published   the exact text that was compared: from `Predicts` if the prompt has it, otherwise the action

An action that could not be parsed or was cut has no vote, unless `Predicts` finds one in the earlier replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rla.config import Config
from rla.envs.registry import environment
from rla.metrics.success import READ, EvaluatedEpisode, evaluated_episode
from rla.store.reading import listed_parts, read_part
from rla.store.records import Task
from rla_programs.answering.at_k import Answered, Estimator, figures_at_k

SAID = (*(f"steps.list.element.{name}" for name in ("action", "observation", "truncated")), "final_observation")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidEpisode:
    """The texts of an episode: its actions, and the answer to each. `ended`: the last action was parsed and not cut."""

    task_id: str
    actions: Sequence[str]
    answers: Sequence[str]
    ended: bool


@runtime_checkable
class Answers(Protocol):
    """An environment whose episodes end with an answer that other episodes may give, too."""

    def answer(self, task: Task, config: Config, reply: str) -> str | None:
        """The class that an answer votes for (maj@k): equal for equivalent answers, None if `reply` has no answer, for
        example because it calls a tool. `reply`: the last action, which was parsed and not truncated.
        """
        ...


@runtime_checkable
class Predicts(Protocol):
    """An `Answers` that extracts the text to compare (published maj@k); otherwise that is the whole last action."""

    def prediction(
        self, task: Task, config: Config, actions: Sequence[str], answers: Sequence[str], *, ended: bool
    ) -> str | None:
        """The text, or None. `answers`: the reply of the environment to each action. `ended`: the last action was
        parsed and not truncated.
        """
        ...


ClassOf = Callable[[SaidEpisode], str | None]  # what an episode votes for
Voted = tuple[EvaluatedEpisode, str | None]  # an episode, and the class of its answer


class AnswerMetrics:
    """`at_k` of every evaluation, for `rla.tables`."""

    def measure(self, trajectories: Path, config: Config, *, held_out: Sequence[Task]) -> dict[str, Any]:
        if not held_out:
            return {}
        class_of = class_of_answers(config, held_out)
        voted = list(voted_episodes(trajectories, class_of))
        return {"at_k": answer_figures(voted, classes=class_of is not None, estimator=config.evaluation.estimator)}


def voted_episodes(trajectories: Path, class_of: ClassOf | None) -> Iterator[Voted]:
    """The episodes of a complete trajectory shard."""
    columns = [*READ, *SAID] if class_of else READ
    for path, entry in listed_parts(trajectories, "trajectories").items():
        for row in read_part(path, columns, kind="trajectories", entry=entry).to_pylist():
            yield evaluated_episode(row), class_of(_said_in_row(row)) if class_of and row["steps"] else None


def _said_in_row(row: Mapping[str, Any]) -> SaidEpisode:
    """From a trajectory row with the columns `SAID` and at least one step."""
    steps = row["steps"]
    return SaidEpisode(
        task_id=row["task_id"],
        actions=[step["action"] for step in steps],
        answers=[*(step["observation"] for step in steps[1:]), row["final_observation"]],
        ended=steps[-1]["valid"] and not steps[-1]["truncated"],
    )


def answer_figures(voted: Iterable[Voted], *, classes: bool, estimator: Estimator) -> dict[str, Any]:
    """The figures of all episodes that count: a task is a question, its kind a source. `classes`: answers have some."""
    groups: dict[str, list[Voted]] = {}
    for one, vote in voted:
        if not one.broken:
            groups.setdefault(one.task_id, []).append((one, vote))
    questions = {
        task_id: Answered(
            source=group[0][0].kind,
            right=[one.won for one, _ in group],
            votes=[vote for _, vote in group] if classes else None,
        )
        for task_id, group in groups.items()
    }
    return figures_at_k(questions, estimator=estimator)


def class_of_answers(config: Config, tasks: Iterable[Task]) -> ClassOf | None:
    """The vote of an episode of one of `tasks`; None if answers of this environment have no classes."""
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
