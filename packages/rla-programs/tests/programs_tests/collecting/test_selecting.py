"""Which conversations are kept: the won ones, no two that are alike, the best of each question and of each source."""

from __future__ import annotations

import pytest
from rla_programs.collecting.conversations import ChatMessage, Conversation
from rla_programs.collecting.params import CollectConfig
from rla_programs.collecting.selecting import grouped_by_text, kept_of_all, kept_of_question, likeness, word_runs


def conversation(
    reply: str, *, asked: str = "q", outcome: int | None = 1, quality: float | None = None, source: str = "s"
) -> Conversation:
    messages = (ChatMessage(role="user", content=asked), ChatMessage(role="assistant", content=reply))
    return Conversation(
        task_id="t", source=source, messages=messages, tools=None, outcome=outcome, quality=quality, teacher="x"
    )


def replies(found: list[Conversation]) -> list[str]:
    return [one.messages[-1].content for one in found]


def test_the_best_come_first_and_unjudged_ones_last() -> None:
    found = [
        conversation("none judged"),
        conversation("half a point", quality=0.5),
        conversation("short", quality=1.0),
        conversation("longer, as good", quality=1.0),
    ]
    assert replies(kept_of_question(found, CollectConfig(keep=9))) == [
        "short", "longer, as good", "half a point", "none judged"
    ]  # fmt: skip
    assert replies(kept_of_question(found, CollectConfig(keep=2))) == ["short", "longer, as good"]


def test_lost_ones_are_rejected_and_unknown_ones_are_not() -> None:
    found = [conversation("lost", outcome=-1, quality=1.0), conversation("who knows", outcome=None)]
    assert replies(kept_of_question(found, CollectConfig(keep=9))) == ["who knows"]
    assert replies(kept_of_question(found, CollectConfig(keep=9, outcome="all"))) == ["lost", "who knows"]


def test_likeness_is_the_share_of_runs_of_three_words() -> None:
    one, other = word_runs(conversation("a b c d e")), word_runs(conversation("a b c d f"))
    assert likeness(one, other) == pytest.approx(2 / 4)  # abc, bcd of abc, bcd, cde, cdf
    assert likeness(word_runs(conversation("x")), word_runs(conversation("x"))) == 1.0


@pytest.mark.parametrize(("alike", "kept"), [(0.4, 1), (0.6, 2), (1.0, 2)])
def test_of_two_that_are_nearly_equal_the_better_is_kept(alike: float, kept: int) -> None:
    found = [conversation("a b c d e", quality=0.0), conversation("a b c d f", quality=1.0)]
    chosen = kept_of_question(found, CollectConfig(keep=9, alike=alike))
    assert replies(chosen) == ["a b c d f", "a b c d e"][:kept]


def test_equal_questions_are_one_whatever_their_tasks() -> None:
    found = [conversation("first", asked="a  b", quality=0.0), conversation("second", asked="a b\n", quality=1.0)]
    assert replies(kept_of_all(found, CollectConfig())) == ["second"]


def test_of_each_source_so_many_of_the_best_are_kept_whatever_their_order() -> None:
    found = [
        conversation(f"{source}{number}", asked=f"{source}{number}", quality=number / 9, source=source)
        for source in "ab"
        for number in range(4)
    ]
    kept = kept_of_all(found, CollectConfig(keep_source=2))
    assert sorted(replies(kept)) == ["a2", "a3", "b2", "b3"]
    assert kept_of_all(found[::-1], CollectConfig(keep_source=2)) == kept


def test_a_conversation_that_comes_twice_is_one() -> None:
    assert len(kept_of_all([conversation("x"), conversation("x")], CollectConfig(keep=9, alike=1.0))) == 1


def test_equal_texts_are_grouped_in_the_order_of_the_first() -> None:
    assert grouped_by_text(["a b", "c", "a  b", "c "]) == [[0, 2], [1, 3]]
