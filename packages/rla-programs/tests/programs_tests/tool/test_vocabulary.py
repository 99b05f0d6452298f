"""Which words a new model's tokenizer has as tokens."""

from __future__ import annotations

from rla_programs.tool.environment import Tool
from rla_programs.tool.labels import ROUND_REASONS

from rla.config import Config
from rla.envs.registry import from_mapping
from rla.models.init import new_tokenizer


def config_of(prompt: str) -> Config:
    tool = {"name": "tool", "own": {"format": "short"}}
    policy = {"reply": "text", "repeat_task": False, "history": "full", "decoding": "free"}
    tasks = {"kinds": ["arithmetic"], "train_scenes": 4, "tasks_per_scene": 1}
    return from_mapping({"env": tool, "policy": policy, "tasks": tasks, "judge": {"prompt": prompt}}, where="test")


def most_tokens_of_a_verdict(config: Config) -> int:
    env = Tool()
    texts = list(env.tokenizer_texts(env.tasks(config, split="train", seed=0), config))
    tokenizer = new_tokenizer(texts, context=512, exact=True)
    return max(len(tokenizer.encode(reason)) for reason in ROUND_REASONS)


def test_reasons_of_the_judge_are_words() -> None:
    """Six: the answer is not the result."""
    assert most_tokens_of_a_verdict(config_of("plain")) == 6


def test_a_judge_that_may_say_anything_adds_no_words() -> None:
    assert most_tokens_of_a_verdict(config_of("published")) > 20
