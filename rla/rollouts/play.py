"""The scheduler between environments and a generator.

One coroutine per episode and no barrier between steps: an episode's next prompt is submitted as soon as its
environment has answered: at once, or, from a worker process, later. Episodes of one task start together, so that a
task's group is complete early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rla.agents.policy import CommandTries, PolicyAgent
from rla.config.sections import EnvConfig, PolicyConfig
from rla.envs.observation import (
    AwaitedEnvironment,
    Concludes,
    Environment,
    EnvironmentFailure,
    Observation,
    close_environment,
    environment_code,
    offered,
    settled,
)
from rla.envs.prompts import PolicyPrompt, ToolPrompt
from rla.llm.base import Generator, Request, UnusableReply, replies_to
from rla.llm.chat import ChatFormat
from rla.pictures.shard import distinct_images
from rla.pictures.vision import PictureChat, VisionFormat
from rla.rollouts.groups import run_groups
from rla.seeds import derive
from rla.store.records import Status, Step, StopReason, Task, Trajectory, content_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode to play: rollout number `rollout` of `task`."""

    task: Task
    rollout: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """Everything that the episodes of one stage share."""

    generator: Generator
    chat: ChatFormat
    prompt: PolicyPrompt
    config: PolicyConfig
    env: EnvConfig
    make_env: Callable[[Task], Environment | AwaitedEnvironment]
    iteration: int
    policy: str  # digest of the checkpoint
    top_p: float = 1.0  # of sampling; below 1 for evaluation alone (`evaluation.top_p`)
    vision: VisionFormat | None = None  # of a policy that sees the pictures of observations
    replied: Callable[[Step, Sequence[int]], None] | None = None  # `rla.rollouts.first_group`: hears every reply

    @property
    def pictures(self) -> PictureChat | None:
        return None if self.vision is None else PictureChat(self.chat, self.vision)

    def seen(self, observation: Observation) -> Observation:
        """The same. Raises EnvironmentFailure where it shows what is no picture."""
        if self.vision is not None:
            for png in observation.images:
                try:
                    self.vision.grid(png)
                except ValueError as error:
                    raise EnvironmentFailure(f"a picture of the environment: {error}") from None
        return observation


def episodes_of(task: Task, *, count: int, seed: int, iteration: int) -> list[Episode]:
    """The `count` episodes of a task, each with its own derived seed."""
    return [
        Episode(task=task, rollout=rollout, seed=derive(seed, task.task_id, rollout, iteration))
        for rollout in range(count)
    ]


async def play_groups(
    groups: Iterable[Sequence[Episode]],
    shared: Rollouts,
    *,
    concurrency: int,
    finished: Callable[[int, list[Trajectory]], None],
) -> None:
    """Play all groups; `finished(index, trajectories)` is called as each group completes."""
    tries = CommandTries(shared.chat)
    await run_groups(groups, lambda episode: play(episode, shared, tries), concurrency=concurrency, finished=finished)


async def play(episode: Episode, shared: Rollouts, tries: CommandTries) -> Trajectory:
    """Play one episode to its end. An environment that fails ends it with `env_error`, not the run."""
    agent = PolicyAgent(
        chat=shared.chat,
        prompt=shared.prompt,
        config=shared.config,
        tries=tries,
        instruction=episode.task.instruction,
        pictures=shared.pictures,
    )
    named = f"environment {episode.task.env}, task {episode.task.task_id}"
    session = f"{episode.task.task_id}/{episode.rollout}"
    steps: list[Step] = []
    error: str | None = None
    seen: list[Observation] = []
    environment: Environment | AwaitedEnvironment | None = None
    try:
        with environment_code(named):
            environment = shared.make_env(episode.task)
            observation = shared.seen(await settled(environment.reset()))
        seen.append(observation)
        stop = StopReason.MAX_STEPS
        for index in range(shared.env.max_steps):
            commands = offered(observation.commands, shared.env.omit_commands)
            told = [result.text for result in observation.results]
            prompt_ids, trie = agent.prompt(observation.text, commands, told, observation.images)
            room = room_of_reply(shared, agent, len(prompt_ids))
            if room is None:
                stop = StopReason.CONTEXT
                break
            request = Request(
                prompt_ids=prompt_ids,
                max_tokens=room,
                temperature=shared.config.temperature,
                seed=derive(episode.seed, index),
                session=session,
                allowed=trie,
                top_p=shared.top_p,
                images=agent.images(),
                turns=agent.turns(),
            )
            (completion,) = await replies_to(shared.generator, request)
            steps.append(agent.read(completion, observation.text, commands))
            with environment_code(named):
                observation = shared.seen(await settled(environment.step(steps[-1].action)))
            seen.append(observation)
            if not observation.understood:
                steps[-1] = replace(steps[-1], valid=False)
            if shared.replied is not None:
                shared.replied(steps[-1], prompt_ids)
            won = observation.success(shared.env.reward_threshold)
            if won or observation.done:
                stop = StopReason.WON if won else StopReason.ENDED
                break
        if stop in (StopReason.MAX_STEPS, StopReason.CONTEXT) and steps and isinstance(environment, Concludes):
            with environment_code(named):
                seen.append(shared.seen(await settled(environment.stopped())))
            stop = StopReason.WON if seen[-1].success(shared.env.reward_threshold) else stop
    except (EnvironmentFailure, UnusableReply) as failure:
        stop, error = StopReason.ENV_ERROR, str(failure)
    finally:
        shared.generator.release(session)
        if environment is not None:
            close_environment(environment, named)
    return record(episode, shared, agent, steps, stop=stop, seen=seen, error=error)


def record(
    episode: Episode,
    shared: Rollouts,
    agent: PolicyAgent,
    steps: list[Step],
    *,
    stop: StopReason,
    seen: list[Observation],
    error: str | None,
) -> Trajectory:
    task = episode.task
    return Trajectory(
        trajectory_id=content_id(task.task_id, str(shared.iteration), str(episode.rollout)),
        task_id=task.task_id,
        slot=task.slot,
        status=Status(task.status).value,
        iteration=shared.iteration,
        rollout=episode.rollout,
        seed=episode.seed,
        outcome=1 if stop is StopReason.WON else -1,
        stop_reason=stop.value,
        instruction=task.instruction,
        kind=task.kind,
        policy=shared.policy,
        steps=steps,
        segments=agent.segments(),
        final_observation=seen[-1].text if seen else "",
        error=error,
        reward=next((one.reward for one in reversed(seen) if one.reward is not None), None),
        images=distinct_images([one.images for one in seen]),
        places=place_digests([one.place for one in seen[: len(steps)]]),
        calls=calls_made(seen[1:]) if isinstance(shared.prompt, ToolPrompt) else None,
        image_spans=agent.image_spans(),
    )


def room_of_reply(shared: Rollouts, agent: PolicyAgent, length: int) -> int | None:
    """The most tokens that a reply to a prompt of `length` tokens may have; None where there is no room for one."""
    config, room = shared.config, shared.generator.context - length
    if config.response_tokens:
        room = min(room, config.response_tokens - agent.answered(length))
    if room >= config.max_tokens:
        return config.max_tokens
    return room if config.response_tokens and room > 0 else None


def calls_made(seen: Sequence[Observation]) -> list[dict[str, Any]]:
    """The calls of a tool, from what the environment answered to each step."""
    return [
        {"step": step, "status": result.status}
        for step, observation in enumerate(seen)
        for result in observation.results
    ]


def place_digests(places: Sequence[str | None]) -> list[str | None] | None:
    """16 hex digits of each place, equal for equal ones; nothing at all where the environment names none."""
    found = [None if place is None else content_id(place) for place in places]
    return None if all(place is None for place in found) else found
