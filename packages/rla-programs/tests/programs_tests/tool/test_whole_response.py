"""`answer: published` reads the whole response, whatever ends it; the default reads the last reply."""

from __future__ import annotations

import asyncio

import pytest
from rla_programs.tool.answers import Verifier
from rla_programs.tool.calls import Malformed, ToolCall
from rla_programs.tool.episode import TAKEN, UNREADABLE, Caller, ToolEpisode
from rla_programs.tool.whole_response import whole_response

from programs_tests.tool.test_episode import QUESTION, Echo, Lines
from rla.envs.observation import CallResult, Concludes, Observation

BOXED_CALL = "\\boxed{42}\n!6 * 7"  # the box of the right answer, and a call; its result is `6 * 7`


def ended(*replies: str, published: bool, stopped: bool = False, tool: Caller | None = None) -> Observation:
    """The last observation of an episode in which malformed calls end it, or the one at which it is stopped."""

    async def played() -> Observation:
        episode = ToolEpisode(
            QUESTION,
            shown="shown",
            caller=tool or Echo(),
            checker=Verifier(published=published),
            calls=Lines(),
            most_calls=1,
            malformed_ends=True,
            whole=published,
        )
        assert isinstance(episode, Concludes)
        last = await episode.reset()
        for reply in replies:
            last = await episode.step(reply)
        return await episode.stopped() if stopped else last

    return asyncio.run(played())


def test_replies_and_results_stand_as_the_template_prints_them() -> None:
    assert whole_response(["a", "b", "c"], ["1", "2", "3"]) == (
        "auser\n<tool_response>\n1\n</tool_response>\nassistant\n"
        "buser\n<tool_response>\n2\n</tool_response>\nassistant\nc"
    )
    assert whole_response(["a"], ["never read"]) == "a"
    assert whole_response([], []) == ""


@pytest.mark.parametrize(("letters", "right"), [(5, True), (29, True), (30, False)])
def test_the_last_hundred_characters_may_hold_an_earlier_box(letters: int, right: bool) -> None:
    """10 of the box, 7 of the call behind it, 21 and 28 around the result, 5 of the result: 29 are left."""
    last = ended(BOXED_CALL, "d" * letters, published=True)
    assert (last.done, last.won, last.text) == (True, right, TAKEN)


def test_by_default_an_earlier_box_is_no_answer() -> None:
    last = ended(BOXED_CALL, "Done.", published=False)
    assert (last.done, last.won, last.understood) == (True, False, False)


@pytest.mark.parametrize(("published", "won"), [(True, True), (False, False)])
def test_a_malformed_end(published: bool, won: bool) -> None:
    last = ended("\\boxed{42}\n!!", published=published)
    assert (last.done, last.won, last.text, last.understood) == (True, won, UNREADABLE, False)


def test_a_malformed_end_with_another_box_is_wrong() -> None:
    assert not ended("\\boxed{42}\n\\boxed{41}\n!!", published=True).won


@pytest.mark.parametrize(("published", "won"), [(True, True), (False, False)])
def test_the_end_at_a_limit(published: bool, won: bool) -> None:
    last = ended(BOXED_CALL, published=published, stopped=True)
    assert (last.done, last.won, last.text) == (True, won, "6 * 7")


class Boxes:
    """A tool that always says the right answer in a box."""

    async def call(self, call: ToolCall | Malformed) -> CallResult:
        return CallResult(text="\\boxed{42}", status="ok")


def test_a_result_is_part_of_the_response_but_not_that_of_the_last_call_at_a_limit() -> None:
    assert ended("!a", "Done.", published=True, tool=Boxes()).won
    assert not ended("!a", published=True, stopped=True, tool=Boxes()).won
    assert ended("!a", "!b", published=True, stopped=True, tool=Boxes()).won


def test_an_episode_that_is_stopped_before_it_began_is_lost() -> None:
    assert not ended(published=True, stopped=True).won
