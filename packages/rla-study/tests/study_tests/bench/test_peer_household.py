"""The environment that TRL is given: the tokens of its episodes are those of `rla`, and episodes end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rla.agents import CommandTries, PolicyAgent
from rla.config import Config
from rla.envs.registry import environment, load_config
from rla.llm.base import Completion, FinishReason
from rla.llm.chat import ChatFormat
from rla.models.init import new_tokenizer
from rla.store.layout import resource
from rla.store.records import Task
from study_tests.bench.peer.household import TOOL, Household, taught_tokenizer

PARAMS = resource("params.yaml")


@pytest.fixture(scope="module")
def config() -> Config:
    sets = ["policy.decoding=free", "tasks.train_scenes=2", "env.max_steps=4"]
    return load_config(PARAMS, sets)


@pytest.fixture(scope="module")
def task(config: Config) -> Task:
    return environment("alfworld").tasks(config, split="train", seed=5)[0]


@pytest.fixture(scope="module")
def tokenizer(config: Config, task: Task) -> Any:
    alfworld = environment("alfworld")
    return new_tokenizer(
        alfworld.tokenizer_texts([task], config), context=896, phrases=alfworld.tokenizer_phrases(config)
    )


def first_command(household: Household) -> str:
    return household._offered()[0]


def test_trl_sees_the_tokens_that_rla_sees(config: Config, task: Task, tokenizer: Any) -> None:
    household = Household({task.task_id: task}, config)
    opening, command = household.reset(task_id=task.task_id), first_command(household)
    result = household.act(command)

    # Ours: the agent's prompt, a reply, the next prompt.
    rules = environment("alfworld")
    chat = ChatFormat(tokenizer)
    agent = PolicyAgent(
        chat=chat,
        prompt=rules.policy_prompt(config),
        config=config.policy,
        tries=CommandTries(chat),
        instruction=task.instruction,
    )
    episode = rules.make(task, config)
    seen = episode.reset()
    first = list(agent.prompt(seen)[0])
    reply = [*chat.encode(command), chat.end_id]
    agent.read(
        Completion(
            token_ids=reply, logprobs=[0.0] * len(reply), allowed=[[]] * len(reply), finish_reason=FinishReason.STOP
        ),
        seen.text,
        (),
    )
    both = agent.prompt(episode.step(command))[0]

    # Theirs: the rendered prompt, and what their tool loop appends for a result, a difference of two renderings.
    taught = taught_tokenizer(tokenizer)
    asked = [{"role": "user", "content": opening}]
    called = [*asked, {"role": "assistant", "content": "", "tool_calls": [call({})]}]
    told = [*called, {"role": "tool", "name": TOOL, "content": result}]
    prompt = taught.apply_chat_template(asked, add_generation_prompt=True, return_dict=False)
    before = taught.apply_chat_template(called, return_dict=False)
    after = taught.apply_chat_template(told, add_generation_prompt=True, return_dict=False)
    assert prompt == first
    assert prompt + reply + after[len(before) :] == both


def call(arguments: dict[str, str]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": TOOL, "arguments": arguments}}


def test_a_reply_is_a_call_with_the_command(tokenizer: Any) -> None:
    taught = taught_tokenizer(tokenizer)
    reply = taught.encode("go to cabinet 1<end>", add_special_tokens=False)
    prefix = taught.encode("<user>your task is to<end><assistant>", add_special_tokens=False)
    parsed = taught.parse_response(reply, prefix=prefix, tools=None)
    assert parsed == {"role": "assistant", "tool_calls": [call({"command": "go to cabinet 1"})]}


def test_the_last_result_leaves_no_room_for_a_reply(config: Config, task: Task, tokenizer: Any) -> None:
    household = Household({task.task_id: task}, config)
    household.reset(task_id=task.task_id)
    lengths = [
        len(tokenizer.encode(household.act(first_command(household)), add_special_tokens=False))
        for _ in range(config.env.max_steps)
    ]
    assert max(lengths[:-1]) < config.generator.context
    assert lengths[-1] >= config.generator.context
    assert household.get_reward() == -1.0


def test_the_experts_episode_is_won_and_pays(config: Config, task: Task) -> None:
    config = replace(config, env=replace(config.env, max_steps=50))
    played = environment("alfworld").play_expert(task, config, seed=0)
    assert played.won
    household = Household({task.task_id: task}, config)
    household.reset(task_id=task.task_id)
    for action in played.actions:
        household.act(action)
    assert household.get_reward() == 1.0
