"""Episodes as Inspect's samples: messages, what is known of each step, scores; texts that do not act."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from rla_study.showing.episodes import ShownCall, ShownEpisode, ShownStep, Vote
from rla_study.viewing.inspect_log import Exported, TokenCounts, inspect_log

from study_tests.episodes import shown_episode

pytestmark = pytest.mark.skipif(find_spec("inspect_ai") is None, reason="the inspect extra is not installed")
SOURCE = Exported(
    name="iteration 3",
    run="x",
    env="maze",
    policy="policy-2",
    created="2026-01-02T03:04:05+00:00",
    digest="d" * 16,
    metadata={"iteration": 3},
)
TOKENS = TokenCounts(sampled=7, read=40)
PNG = b"\x89PNG\r\n\x1a\n"


def shown(**changes: Any) -> ShownEpisode:
    votes = [Vote(score=1, text="towards it", reward=-0.5), Vote(score=-1, text="away"), Vote(score=None, text="eh")]
    steps = [
        ShownStep(index=0, observation="a room", reply="go east", action="go east", valid=True, votes=votes, label=1),
        ShownStep(
            index=1, observation="a door", reply="hm", action="", valid=False, reward=1.25, advantage=-0.7512, label=-1
        ),
    ]
    return shown_episode(**({"steps": steps} | changes))


def sample(**changes: Any) -> Any:
    (found,) = inspect_log(SOURCE, [shown(**changes)], {"abc": TOKENS}).samples
    return found


def test_an_episode_is_a_sample_whose_epoch_is_the_rollout() -> None:
    found = sample()
    assert (found.id, found.epoch, found.uuid, found.input) == ("t1", 3, "abc", "find the exit")
    roles = [(one.role, one.content) for one in found.messages]
    assert roles == [
        ("user", "find the exit"),
        ("user", "a room"),
        ("assistant", "go east"),
        ("user", "a door"),
        ("assistant", "hm"),
        ("user", "the end"),
    ]
    assert (found.limit.type, found.limit.limit, found.error) == ("turn", 2, None)
    usage = found.model_usage["policy"]
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (40, 7, 47)


def test_a_task_that_the_first_observation_repeats_is_said_once() -> None:
    steps = [ShownStep(index=0, observation="Your task: find the exit", reply="go", action="go", valid=True)]
    assert [one.role for one in sample(steps=steps).messages] == ["user", "assistant", "user"]


def test_what_is_known_of_a_step_stands_beside_it() -> None:
    first, second = (one.metadata for one in sample().messages if one.role == "assistant")
    assert first == {
        "step": 0,
        "action": "go east",
        "solver": "it helped",
        "mean_vote": 0.0,
        "vote_1": "+1, paid -0.50: towards it",
        "vote_2": "-1: away",
        "vote_3": "no vote: eh",
    }
    assert (second["invalid"], second["reward"], second["advantage"]) == ("no action could be read", 1.25, -0.751)
    assert second["solver"] == "it did not help"


def test_scores_are_the_outcome_the_mean_vote_and_the_share_of_votes_that_are_right() -> None:
    log = inspect_log(SOURCE, [shown(), shown(trajectory_id="b", won=True, steps=[])], {"abc": TOKENS, "b": TOKENS})
    first, second = log.samples
    assert {name: one.value for name, one in first.scores.items()} == {"outcome": "I", "judge": 0.0, "judge_right": 0.5}
    assert {name: one.value for name, one in second.scores.items()} == {"outcome": "C"}
    means = {one.name: next(iter(one.metrics.values())).value for one in log.results.scores}
    assert means == {"outcome": 0.5, "judge": 0.0, "judge_right": 0.5}


def test_an_environment_that_broke_is_an_error() -> None:
    assert sample(stop_reason="env_error", error="no \x1b[31mpower").error.message == "no  [31mpower"


def test_texts_are_plain_and_the_viewer_is_told_not_to_trust_them() -> None:
    log = inspect_log(SOURCE, [shown(verdict="a\x1b[31m\u202eb\x07")], {"abc": TOKENS})
    assert log.samples[0].messages[-1].content == "a [31m b "
    assert log.eval.viewer.trust_content is False


def test_beside_screenshots_every_text_stands_in_a_fence() -> None:
    steps = [ShownStep(index=0, observation="a ````x", reply="# go", action="go", valid=True, images=[PNG])]
    log = inspect_log(SOURCE, [shown(steps=steps, last_images=[PNG])], {"abc": TOKENS})
    task, seen, done, end = log.samples[0].messages
    assert log.eval.viewer.trust_content is None
    assert task.content == "```\nfind the exit\n```" and done.content == "```\n# go\n```"
    assert log.samples[0].input == task.content
    text, image = seen.content
    assert text.text == "`````\na ````x\n`````" and image.image == "data:image/png;base64,iVBORw0KGgo="
    assert end.content[1].image == image.image  # what the last action led to


def test_a_long_task_is_cut_so_that_the_heading_leaves_it_in_its_fence() -> None:
    """The viewer's heading takes what has more than 360 units of UTF-16 out of a fence."""
    steps = [ShownStep(index=0, observation="", reply="", action="", valid=True, images=[PNG])]
    found = sample(steps=steps, instruction="````\n[\U0001f600](x) " * 99).input
    assert len(found.encode("utf-16-le")) // 2 <= 360
    assert "`" not in found.removeprefix("```\n").removesuffix("\n```")


def test_calls_of_a_tool_are_tool_calls_and_their_results_messages_of_the_tool() -> None:
    call = ShownCall(name="python", arguments={"code": "print(\x1b1)", "limit": 3}, status="ok")
    broken = ShownCall(name="", arguments={}, status="malformed", fault="no code")
    steps = [
        ShownStep(index=0, observation="1?", reply=">>> 1", action=">>> 1", valid=True, calls=[call, broken]),
        ShownStep(index=1, observation="1\n\nno code", reply="= 1", action="= 1", valid=True),
    ]
    found = sample(instruction="1?", steps=steps, verdict="taken").messages
    assert [one.role for one in found] == ["user", "assistant", "tool", "assistant", "user"]
    first, second = found[1].tool_calls
    assert (first.function, first.arguments) == ("python", {"code": "print( 1)", "limit": "3"})
    assert (second.function, second.parse_error) == ("unreadable", "no code")
    assert (found[2].content, found[2].tool_call_id) == ("1\n\nno code", first.id)
    assert found[2].metadata == {"ended": "ok, malformed"} and found[3].tool_calls is None


def test_an_episode_that_ends_with_a_call_ends_with_its_result() -> None:
    call = ShownCall(name="python", arguments={"code": "1"}, status="ok")
    step = ShownStep(index=0, observation="1?", reply=">>> 1", action=">>> 1", valid=True, calls=[call])
    assert [one.role for one in sample(instruction="1?", steps=[step]).messages] == ["user", "assistant", "tool"]
