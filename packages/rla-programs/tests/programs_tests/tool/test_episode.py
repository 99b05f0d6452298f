"""Rounds of calls and results, and the answer that ends an episode."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from rla_programs.tool.calls import Malformed, ToolCall, Turn
from rla_programs.tool.episode import TAKEN, UNREADABLE, ToolEpisode
from rla_programs.tool.questions import Question

from rla.envs.observation import CallResult, EnvironmentFailure, Observation

QUESTION = Question(text="What is 6 times 7?", check="number", answer="42", source="test")


class Lines:
    """A call is a line that begins with `!`; `!!` is one that cannot be read."""

    schemas: tuple[Mapping[str, Any], ...] = ()
    role = "user"

    def parse(self, reply: str) -> Turn:
        calls = [line[1:] for line in reply.splitlines() if line.startswith("!")]
        read = tuple(
            Malformed(reason="no code") if code == "!" else ToolCall(name="t", arguments={"code": code})
            for code in calls
        )
        return Turn(text=reply, calls=read)

    def render(self, text: str, calls: Sequence[ToolCall]) -> str:
        return text


class Echo:
    """A tool that says its code again."""

    async def call(self, call: ToolCall | Malformed) -> CallResult:
        if isinstance(call, Malformed):
            return CallResult(text=call.reason, status="malformed")
        return CallResult(text=call.arguments["code"], status="ok")


class Equal:
    async def right(self, question: Question, reply: str) -> float:
        return float(reply == question.answer)

    def answered(self, question: Question, reply: str) -> bool:
        return reply.isdigit()


def steps(*actions: str, most_calls: int = 2, malformed_ends: bool = False, tool: bool = True) -> list[Observation]:
    async def played() -> list[Observation]:
        episode = ToolEpisode(
            QUESTION,
            shown="shown",
            caller=Echo() if tool else None,
            checker=Equal(),
            calls=Lines(),
            most_calls=most_calls,
            malformed_ends=malformed_ends,
        )
        return [await episode.reset(), *[await episode.step(action) for action in actions]]

    return asyncio.run(played())


def test_a_call_is_answered_and_the_answer_ends_the_episode() -> None:
    first, second, last = steps("!6 * 7", "42")
    assert first.text == "shown" and not first.results
    assert second.results == (CallResult(text="6 * 7", status="ok"),) and not second.done
    assert (last.done, last.won, last.reward, last.text) == (True, True, None, TAKEN)


def test_a_wrong_answer_ends_it_as_well_and_reads_the_same() -> None:
    *_, last = steps("41")
    assert (last.done, last.won, last.reward, last.text, last.understood) == (True, False, None, TAKEN, True)


def test_calls_beyond_the_most_are_told_that_they_were_not_run() -> None:
    _, answer = steps("!a\n!b\n!c")
    assert [result.status for result in answer.results] == ["ok", "ok", "excess"]
    assert answer.text == "a\n\nb\n\n" + answer.results[2].text


def test_a_call_that_cannot_be_read_is_told_why() -> None:
    _, answer = steps("!!")
    assert answer.results == (CallResult(text="no code", status="malformed"),)
    assert not answer.understood and not answer.done


def test_or_ends_the_episode_as_in_the_published_code() -> None:
    _, answer = steps("!!", malformed_ends=True)
    assert (answer.done, answer.won, answer.text, answer.understood) == (True, False, UNREADABLE, False)


def test_beside_a_call_that_can_be_read_it_does_not() -> None:
    _, answer = steps("!!\n!b", malformed_ends=True)
    assert not answer.done and answer.understood


def test_and_it_takes_the_place_of_one_that_may_run() -> None:
    """The published code drops it and runs the other one (docs/explain/paper.md)."""
    _, answer = steps("!!\n!b", malformed_ends=True, most_calls=1)
    assert [result.status for result in answer.results] == ["malformed", "excess"]


def test_without_a_tool_every_call_is_told_so() -> None:
    _, answer = steps("!a", tool=False)
    assert [result.status for result in answer.results] == ["absent"]


def test_nothing_follows_the_end() -> None:
    with pytest.raises(EnvironmentFailure, match="after the end"):
        steps("42", "42")


def test_a_program_earns_the_share_of_tests_that_it_passes() -> None:
    class Half(Equal):
        async def right(self, question: Question, reply: str) -> float:
            return 0.5

    async def ended(reply: str) -> Observation:
        asked = Question(text="Write it.", check="code", answer="", source="test", problem="{}")
        episode = ToolEpisode(
            asked, shown="", caller=None, checker=Half(), calls=Lines(), most_calls=1, malformed_ends=False
        )
        await episode.reset()
        return await episode.step(reply)

    program, nothing = asyncio.run(ended("1")), asyncio.run(ended("no program"))
    assert (program.won, program.reward) == (False, 0.5)
    assert (nothing.won, nothing.reward) == (False, None)  # shaping tells it from a program that fails every test
