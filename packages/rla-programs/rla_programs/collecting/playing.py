"""A teacher plays episodes of the real environment: its tool runs, and what it answers stands in the conversation.

The conversation ends with the last reply. An environment that fails, and a server that sends no reply, make it none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rla.agents.policy import NO_ACTION, action_in
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
from rla.envs.protocols import PolicyPrompt, ToolPrompt, told_schemas
from rla.envs.registry import environment
from rla.envs.views import Demonstration
from rla.seeds import derive
from rla.store.records import Task
from rla_programs.collecting.conversations import Conversation
from rla_programs.collecting.teachers import Dialogue, Teacher


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """What all episodes of a stage share."""

    teacher: Teacher
    prompt: PolicyPrompt
    env: EnvConfig
    make_env: Callable[[Task], Environment | AwaitedEnvironment]
    seed: int


async def taught(task: Task, episode: int, shared: Lessons) -> Conversation | None:
    """Episode number `episode` of a task; None where it failed."""
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
    """What the environment answered, in the turns in which a policy reads it."""
    if observation.results and isinstance(prompt, ToolPrompt):
        dialogue.results([result.text for result in observation.results], prompt.result_role)
    else:
        dialogue.turn(prompt.turn(observation.text, commands, instruction))


@runtime_checkable
class Stitches(Protocol):
    """Episodes that nobody has played: reasoning some of whose steps became calls of a tool afterwards."""

    def stitch(self, task: Task, config: Config, *, seed: int) -> Demonstration:
        """Observations after the first are what the calls are said to have answered."""
        ...


def stitched_conversation(task: Task, stitcher: Stitches, config: Config, *, episode: int) -> Conversation:
    """The conversation of an episode that nobody has played."""
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
    """JSON text of the schemas that a chat template is told."""
    schemas = told_schemas(prompt)
    return json.dumps(list(schemas), ensure_ascii=False) if schemas else None
