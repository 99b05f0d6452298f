"""What the engine sampled between the results of calls is what the trainer scores; results are never scored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rla_programs.tool.calls import TOOL, ToolCall  # noqa: E402
from rla_programs.tool.environment import Tool, call_format  # noqa: E402

from rla.config import Config  # noqa: E402
from rla.config.sections import GeneratorConfig, ModelConfig  # noqa: E402
from rla.config.training import TrainConfig  # noqa: E402
from rla.envs.observation import AwaitedEnvironment, Observation  # noqa: E402
from rla.envs.registry import environment, from_mapping  # noqa: E402
from rla.llm.chat import ChatFormat  # noqa: E402
from rla.llm.factory import make_generator  # noqa: E402
from rla.models.init import init_model, new_tokenizer  # noqa: E402
from rla.rollouts.play import Rollouts, episodes_of, play_groups  # noqa: E402
from rla.store.records import Task, Trajectory  # noqa: E402
from rla.training.loop import train  # noqa: E402
from rla.training.sequences import policy_sequences  # noqa: E402
from tests.unit.training.builders import reward  # noqa: E402

PROGRAMS = ("print(6 * 7)", "print('a' * 300)", "print(undefined)")
RESULTS = ("42", "a" * 300, "NameError")
ENGINE = GeneratorConfig(max_sequences=4, context=4096)
TEMPERATURE = 0.8


class Calling:
    """An episode that makes calls of its own, whatever the policy says: a model of random weights makes none."""

    def __init__(self, episode: AwaitedEnvironment, config: Config) -> None:
        self._episode = episode
        calls = call_format(config)
        said = [calls.render("", [ToolCall(name=TOOL, arguments={"code": code})]) for code in PROGRAMS]
        self._actions = iter([*said, "no answer"])

    async def reset(self) -> Observation:
        return await self._episode.reset()

    async def step(self, action: str) -> Observation:
        return await self._episode.step(next(self._actions))

    def close(self) -> None:
        self._episode.close()


def config_of(form: str) -> Config:
    own = {"format": form, "execution": {"backend": "rlimits", "wall_s": 30.0}}
    policy = {"reply": "text", "repeat_task": False, "history": "full", "max_tokens": 12, "temperature": TEMPERATURE}
    return from_mapping(
        {
            "env": {"name": "tool", "max_steps": 4, "own": own},
            "policy": policy | {"decoding": "free"},
            "tasks": {"kinds": ["arithmetic"], "train_scenes": 2, "tasks_per_scene": 1},
        },
        where="test",
    )


def played(model: Path, config: Config) -> tuple[list[Trajectory], ChatFormat]:
    tool = environment("tool")
    assert isinstance(tool, Tool)
    engine, tokenizer = make_generator(ENGINE, model=model, seed=0)
    chat, found = ChatFormat(tokenizer), []

    async def episodes(tasks: list[Task]) -> None:
        service = tool.service(config)
        shared = Rollouts(
            generator=engine,
            chat=chat,
            prompt=tool.policy_prompt(config),
            config=config.policy,
            env=config.env,
            make_env=lambda task: Calling(service.make(task), config),
            iteration=1,
            policy="0",
        )
        groups = [episodes_of(task, count=2, seed=0, iteration=1) for task in tasks]
        try:
            await play_groups(groups, shared, concurrency=4, finished=lambda _, group: found.extend(group))
        finally:
            await service.close()

    try:
        asyncio.run(episodes(tool.tasks(config, split="train", seed=0)))
    finally:
        engine.close()
    return found, chat


@pytest.mark.parametrize("form", ["short", "hermes"])
def test_episodes_with_tools(form: str, tmp_path: Path) -> None:
    config = config_of(form)
    sizes = ModelConfig(hidden_size=16, layers=2, heads=2, intermediate_size=32, context=4096)
    init_model(
        tmp_path / "model",
        tokenizer=new_tokenizer(["a", *PROGRAMS], context=sizes.context, exact=True),
        config=sizes,
        seed=5,
    )
    trajectories, chat = played(tmp_path / "model", config)
    assert len(trajectories) == 4
    rows: list[dict[str, Any]] = [one.row() for one in trajectories]
    for row in rows:
        assert [call["status"] for call in row["calls"]] == ["ok", "ok", "error"]
        (segment,) = row["segments"]
        for before, after, result in zip(row["steps"], row["steps"][1:], RESULTS, strict=False):
            assert result in chat.decode(segment["token_ids"][before["end"] : after["start"]])
            assert not any(segment["sampled"][before["end"] : after["start"]])

    rewards = [
        reward(row["trajectory_id"], step, (-1.0) ** number) for number, row in enumerate(rows) for step in range(4)
    ]
    metrics = train(
        model_folder=tmp_path / "model",
        out=tmp_path / "out",
        sequences=policy_sequences(rows, rewards),
        config=TrainConfig(lr=1e-3, updates=1, kl_coef=0.0),
        temperature=TEMPERATURE,
        seed=0,
    )
    assert metrics["loss_tokens"] == sum(sum(row["segments"][0]["sampled"]) for row in rows)
    assert metrics["sampler_gap_max"] < 1e-4
    assert metrics["ratio_max"] == pytest.approx(1.0, abs=1e-4)
