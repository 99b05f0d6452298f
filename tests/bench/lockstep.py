"""The baseline of `bench_rollout`: all episodes step together, and each step waits for the slowest reply.

As published implementations roll out: one batch of requests for all episodes that are not over, then all
environments, then the next batch. Prompts, requests, seeds and environments are those of `rla.rollouts.play`; only the
order of work differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rla.agents import CommandTries, PolicyAgent
from rla.envs.observation import Environment, Observation, offered
from rla.llm.base import Request
from rla.rollouts.play import Episode, Rollouts
from rla.seeds import derive


class Running:
    """An episode that is not over."""

    def __init__(self, episode: Episode, shared: Rollouts, tries: CommandTries) -> None:
        self.episode = episode
        self.environment: Environment = shared.make_env(episode.task)
        self.observation: Observation = self.environment.reset()
        self.session = f"{episode.task.task_id}/{episode.rollout}"
        self.agent = PolicyAgent(
            chat=shared.chat,
            prompt=shared.prompt,
            config=shared.config,
            tries=tries,
            instruction=episode.task.instruction,
        )


async def play_in_lockstep(episodes: Sequence[Episode], shared: Rollouts) -> int:
    """Play all episodes; the number of steps taken."""
    tries = CommandTries(shared.chat)
    running = [Running(episode, shared, tries) for episode in episodes]
    steps = 0
    for index in range(shared.env.max_steps):
        asked: list[tuple[Running, tuple[str, ...], Request]] = []
        for one in running:
            commands = offered(one.observation.commands, shared.env.omit_commands)
            prompt_ids, trie = one.agent.prompt(one.observation, commands)
            if shared.generator.context - len(prompt_ids) < shared.config.max_tokens:
                continue
            request = Request(
                prompt_ids=prompt_ids,
                max_tokens=shared.config.max_tokens,
                temperature=shared.config.temperature,
                seed=derive(one.episode.seed, index),
                session=one.session,
                allowed=trie,
            )
            asked.append((one, commands, request))
        replies = await asyncio.gather(*(shared.generator.generate(request) for _, _, request in asked))
        running = []
        for (one, commands, _), (completion,) in zip(asked, replies, strict=True):
            step = one.agent.read(completion, one.observation.text, commands)
            one.observation = one.environment.step(step.action)
            steps += 1
            if not one.observation.won and not one.observation.done:
                running.append(one)
        if not running:
            break
    return steps
