"""The official client, and an agent framework, in programs that know nothing of rla."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from programs_tests.collecting.families import tokenizer_of

from gateway_tests.playing import play, said
from rla.llm.chat import ChatFormat

FOLDER = Path(__file__).parent
LONG = {"context": 1 << 16, "max_tokens": 512}


def called(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@pytest.fixture(scope="module")
def qwen() -> ChatFormat:
    return ChatFormat(tokenizer_of("qwen2_5"))


def test_the_official_client(qwen: ChatFormat) -> None:
    pytest.importorskip("openai")
    twice = "\n".join(called("add", f'{{"a": {a}, "b": {a + 1}}}') for a in (1, 3))
    reply = said(called("add", '{"a": 1, "b": 2}'), "It is 3.", twice, format=qwen)
    (one,) = play(
        [sys.executable, str(FOLDER / "openai_agent.py")], reply, format=qwen, context=1 << 16, max_tokens=512
    )
    assert (one.outcome, one.error, len(one.steps)) == (1, None, 3)
    assert [step.segment for step in one.steps] == [0, 0, 0]
    prompt = qwen.tokenizer.decode(one.segments[0].token_ids)
    assert "Adds two numbers." in prompt and "<tool_response>\n3\n</tool_response>" in prompt


def test_a_framework(qwen: ChatFormat) -> None:
    pytest.importorskip("smolagents")
    reply = said(called("multiply", '{"a": 6, "b": 7}'), called("final_answer", '{"answer": "42"}'), format=qwen)
    (one,) = play([sys.executable, str(FOLDER / "smol_agent.py")], reply, format=qwen, **LONG)
    assert (one.outcome, one.error, len(one.steps)) == (1, None, 2), one.final_observation
    assert "42" in one.steps[1].observation
