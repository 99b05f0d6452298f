"""`env.own.tool: none`: what the policy reads and what it is taught hold no call and no word of a tool."""

from __future__ import annotations

from typing import Any

import pytest
from rla_programs.tool.calls import SCHEMA
from rla_programs.tool.environment import Tool, call_format
from rla_programs.tool.questions import question_of

from programs_tests.tool.questions import drawn
from rla.config import Config
from rla.envs.protocols import told_schemas
from rla.envs.registry import from_mapping
from rla.errors import UserError

ENV = Tool()
POLICY = {"reply": "text", "repeat_task": False, "history": "full", "decoding": "free"}
TASKS = drawn("arithmetic", "counting", "steps", count=6)


def config_of(tool: str, form: str, **other: Any) -> Config:
    own = {"tool": tool, "format": form, "prompt": "published"}
    return from_mapping({"env": {"name": "tool", "own": own}, "policy": POLICY, **other}, where="test")


@pytest.mark.parametrize("form", ["short", "hermes"])
def test_demonstrations_answer_at_once(form: str) -> None:
    config = config_of("none", form)
    calls = call_format(config)
    for task in TASKS:
        for seed in range(6):
            for share in (0.0, 1.0):
                one = ENV.demonstrate(task, config, seed=seed, random_share=share)
                assert len(one.actions) == len(one.observations) == 1
                assert not calls.parse(one.actions[0]).calls
                assert one.won is (share == 0.0)
                assert (
                    ENV.prediction(task, config, one.actions, [], ended=True) == question_of(task).answer
                ) is one.won


@pytest.mark.parametrize("form", ["short", "hermes"])
def test_the_scripted_solver_answers_at_once_and_again(form: str) -> None:
    config = config_of("none", form)
    for task in TASKS:
        first = ENV.solve(task, config, [], 1)
        assert ENV.prediction(task, config, [first], [], ended=True) == question_of(task).answer
        assert ENV.solve(task, config, [("a call", "There is no such tool here.")], 1) == first


def test_the_template_is_told_of_no_tool() -> None:
    assert told_schemas(ENV.policy_prompt(config_of("none", "hermes"))) == ()
    assert told_schemas(ENV.policy_prompt(config_of("python", "hermes"))) == (SCHEMA,)


@pytest.mark.parametrize("form", ["short", "hermes"])
def test_neither_questions_nor_the_tokenizer_read_of_calls(form: str) -> None:
    config = config_of("none", form)
    calls = call_format(config)
    shown = [ENV.demonstrate(task, config, seed=0, random_share=0.0).observations[0] for task in TASKS]
    assert not any("tool" in text or "call" in text for text in shown)
    assert not any(calls.parse(text).calls for text in ENV.tokenizer_texts(TASKS, config))


def test_stitched_conversations_are_refused_because_they_are_calls() -> None:
    with pytest.raises(UserError, match=r"collect\.variant: stitched writes calls down, and env\.own\.tool is none"):
        config_of("none", "short", collect={"variant": "stitched"})
    config_of("python", "short", collect={"variant": "stitched"})
