"""A teacher plays episodes of the real environment: its tool runs, and the conversation contains its answers.

The conversation ends with the last reply. If the environment fails, or a server sends no reply, there is no
conversation.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rla.agents import NO_ACTION, action_in
from rla.config import Config
from rla.config.sections import EnvConfig
from rla.envs.observation import (
    AwaitedEnvironment,
    CallResult,
    Environment,
    EnvironmentFailure,
    Observation,
    close_environment,
    environment_code,
    offered,
    settled,
)
from rla.envs.protocols import Demonstration, PolicyPrompt, ToolPrompt, told_schemas
from rla.envs.registry import environment
from rla.seeds import derive
from rla.store.records import Task
from rla_programs.collecting.conversations import Conversation
from rla_programs.collecting.teachers import Dialogue, Teacher


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """State shared by all episodes of a stage."""

    teacher: Teacher
    prompt: PolicyPrompt
    env: EnvConfig
    make_env: Callable[[Task], Environment | AwaitedEnvironment]
    seed: int


async def taught(task: Task, episode: int, shared: Lessons) -> Conversation | None:
    """The conversation of episode number `episode` of a task; None if it failed."""
    made: Environment | AwaitedEnvironment | None = None
    try:
        with environment_code(f"environment {task.env}, task {task.task_id}"):
            made = shared.make_env(task)
        return await _played(task, made, shared, seed=derive(shared.seed, "collect", task.task_id, episode))
    except EnvironmentFailure:
        return None
    finally:
        if made is not None:
            close_environment(made, f"environment {task.env}, task {task.task_id}")


async def _played(
    task: Task, made: Environment | AwaitedEnvironment, shared: Lessons, *, seed: int
) -> Conversation | None:
    named = f"environment {task.env}, task {task.task_id}"
    with environment_code(named):
        observation = await settled(made.reset())
    commands = offered(observation.commands, shared.env.omit_commands)
    dialogue, won = Dialogue(shared.prompt.opening(observation.text, commands)), False
    for index in range(shared.env.max_steps):
        answer = await shared.teacher.answer(task, dialogue, seed=derive(seed, index))
        if answer is None:
            return None
        reply, called = answer
        dialogue.reply(reply, called)
        action = action_in(reply, shared.prompt, commands)
        with environment_code(named):
            observation = await settled(made.step(NO_ACTION if action is None else action))
        dialogue.history.append((reply, observation.text))
        won = observation.success(shared.env.reward_threshold)
        if won or observation.done or index + 1 == shared.env.max_steps:
            break
        commands = offered(observation.commands, shared.env.omit_commands)
        tell(dialogue, observation, commands, prompt=shared.prompt, instruction=task.instruction)
    return Conversation(
        task_id=task.task_id,
        source=task.kind,
        messages=tuple(dialogue.said),
        tools=schemas_text(shared.prompt),
        outcome=1 if won else -1,
        quality=None,
        teacher=shared.teacher.name,
    )


def tell(
    dialogue: Dialogue, observation: Observation, commands: tuple[str, ...], *, prompt: PolicyPrompt, instruction: str
) -> None:
    """Add the environment's answer, in the turns in which a policy reads it."""
    if observation.results and isinstance(prompt, ToolPrompt):
        dialogue.results([result.text for result in observation.results], prompt.result_role)
    else:
        dialogue.turn(prompt.turn(observation.text, commands, instruction))


@runtime_checkable
class Stitches(Protocol):
    """Writes episodes without playing them: in a written solution, some steps are replaced by tool calls."""

    def stitch(self, task: Task, config: Config, *, seed: int) -> Demonstration:
        """The episode; observations after the first are the stated results of the calls."""
        ...


def stitched_conversation(task: Task, stitcher: Stitches, config: Config, *, episode: int) -> Conversation:
    """The conversation of an episode that was not played."""
    prompt = environment(config.env.name).policy_prompt(config)
    shown = stitcher.stitch(task, config, seed=derive(config.seed, "collect", task.task_id, episode))
    dialogue = Dialogue(prompt.opening(shown.observations[0], shown.commands[0]))
    for index, action in enumerate(shown.actions):
        if index:
            text = shown.observations[index]
            answered = Observation(text=text, results=(CallResult(text, "ok"),))
            tell(dialogue, answered, shown.commands[index], prompt=prompt, instruction=task.instruction)
        dialogue.reply(prompt.render(action, shown.commands[index]))
    return Conversation(
        task_id=task.task_id,
        source=task.kind,
        messages=tuple(dialogue.said),
        tools=schemas_text(prompt),
        outcome=1 if shown.won else -1,
        quality=None,
        teacher="stitched",
    )


def schemas_text(prompt: PolicyPrompt) -> str | None:
    """JSON text of the schemas that a chat template is given."""
    schemas = told_schemas(prompt)
    return json.dumps(list(schemas), ensure_ascii=False) if schemas else None
