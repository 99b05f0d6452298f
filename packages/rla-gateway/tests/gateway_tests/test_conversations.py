"""A conversation goes on token for token, and everything else begins a segment."""

from __future__ import annotations

import json
from typing import Any

from programs_tests.collecting.families import tokenizer_of
from rla_gateway.conversations import OPENED, REWRITTEN, Conversations
from rla_gateway.messages import ChatRequest, read_chat
from rla_programs.tool.formats import make_format

from gateway_tests.playing import chat, play, replayed, said
from rla.llm.chat import ChatFormat
from rla.store.records import Segment

GROWING = """
talk = [user("one")]
talk += [ask(talk), user("two")]
talk += [ask(talk), user("three")]
sys.exit(ask(talk)["content"] != "c")
"""


def texts(segments: list[Segment]) -> list[str]:
    return [chat().tokenizer.decode(one.token_ids) for one in segments]


def sampled(segment: Segment) -> list[int]:
    return [token for token, own in zip(segment.token_ids, segment.sampled, strict=True) if own]


def test_a_growing_conversation_is_one_segment() -> None:
    (one,) = play(GROWING, said("a", "b", "c"))
    assert (one.outcome, one.stop_reason, one.error) == (1, "won", None)
    assert [step.segment for step in one.steps] == [0, 0, 0]
    assert [step.observation for step in one.steps] == ["one", "two", "three"]
    turns = zip(("one", "two", "three"), "abc", strict=True)
    assert texts(one.segments) == ["".join(f"<user>{told}<end><assistant>{reply}<end>" for told, reply in turns)]
    assert sampled(one.segments[0]) == [token for reply in "abc" for token in (*chat().encode(reply), chat().end_id)]


def test_sampled_tokens_stay_as_they_are() -> None:
    """The same text in other tokens than the tokenizer would choose, with white space that the client trims."""
    merging = ChatFormat(tokenizer_of("qwen2_5"))
    odd = [*(token for letter in "the" for token in merging.encode(letter)), *merging.encode(" \n"), merging.end_id]
    assert merging.decode(odd) == "the \n" and odd[:3] != merging.encode("the \n")[:3]
    source = """
talk = [user("x")]
reply = ask(talk)
reply["content"] = reply["content"].strip()
ask([*talk, reply, user("y")])
"""
    (one,) = play(source, lambda request, seed: odd, format=merging)
    (segment,) = one.segments
    assert sampled(segment) == odd * 2


def test_a_rewritten_history_begins_a_segment() -> None:
    source = """
talk = [user("one")]
talk += [ask(talk), user("two")]
ask(talk)
sys.exit(ask([user("one"), {"role": "assistant", "content": "shorter"}, user("three")])["content"] != "c")
"""
    (one,) = play(source, said("a long reply", "b", "c"))
    assert [step.segment for step in one.steps] == [0, 0, 1]
    assert one.steps[2].observation.startswith(f"{REWRITTEN}\n")
    assert texts(one.segments)[1] == "<user>one<end><assistant>shorter<end><user>three<end><assistant>c<end>"
    assert sampled(one.segments[1]) == [*chat().encode("c"), chat().end_id]


def test_sub_agents_have_conversations_of_their_own() -> None:
    source = """
first, second = [user("one")], [user("other")]
for talk in (first, second, first, second):
    talk += [ask(talk), user("more")]
"""
    (one,) = play(source, said("a", "b", "c", "d"))
    assert [step.segment for step in one.steps] == [0, 1, 0, 1]
    assert one.steps[1].observation == f"{OPENED}\nother"
    assert [sampled(segment) for segment in one.segments] == [
        [token for reply in pair for token in (*chat().encode(reply), chat().end_id)] for pair in ("ac", "bd")
    ]


def test_a_reply_that_is_continued_twice() -> None:
    source = """
talk = [user("one")]
talk += [ask(talk)]
ask([*talk, user("left")])
ask([*talk, user("right")])
"""
    (one,) = play(source, said("a", "b", "c"))
    assert [step.segment for step in one.steps] == [0, 0, 1]
    left, right = one.segments
    shared = one.steps[0].end
    assert right.token_ids[:shared] == left.token_ids[:shared]
    assert not any(right.sampled[:shared])  # those tokens train once
    assert sampled(right) == [*chat().encode("c"), chat().end_id]


def test_parallel_requests_are_steps_in_order() -> None:
    source = """
found = {}
def one(name): found[name] = ask([user(name)])["content"]
threads = [threading.Thread(target=one, args=(str(number),)) for number in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(sorted(found) != list("012345") or sorted(found.values()) != list("abcdef"))
"""
    (one,) = play(source, said(*"abcdef"))
    assert one.outcome == 1
    assert [step.segment for step in one.steps] == list(range(6))
    assert [step.reply for step in one.steps] == list("abcdef")


def test_an_agent_that_is_replayed_reads_the_same_tokens() -> None:
    first = play(GROWING.replace("!=", "=="), said(*"abcabc"), count=2)
    rows = [one.row() for one in first]
    again = play(GROWING.replace("!=", "=="), replayed(rows), count=2)
    assert [one.row() for one in again] == rows


def request(*messages: dict[str, Any], **more: Any) -> ChatRequest:
    return read_chat(json.dumps({"messages": messages, **more}).encode())


def test_calls_are_compared_by_value() -> None:
    """Clients write the arguments of a call anew, in another order."""
    conversations = Conversations(make_format("hermes"))
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    opening = {"role": "user", "content": "1 + 2"}
    asked = request(opening, tools=tools)
    assert conversations.asked(asked)[1].tools == tuple(tools)

    def called(arguments: str) -> dict[str, Any]:
        call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    conversations.replied(asked, request(called('{"a": 1, "b": 2}')).messages[0])
    result = {"role": "tool", "tool_call_id": "x", "content": "3"}
    text, turns = conversations.asked(request(opening, called('{"b":2,"a":1}'), result, tools=tools))
    assert (text, turns.after, turns.turns) == ("3", 0, (("tool", "3"),))
    _, changed = conversations.asked(request(opening, called('{"b":3,"a":1}'), result, tools=tools))
    assert changed.after is None
    written = '<tool_call>\n{"name": "add", "arguments": {"b": 3, "a": 1}}\n</tool_call>'
    assert changed.turns[1] == ("assistant", written)


def test_other_tools_make_another_prompt() -> None:
    conversations = Conversations(make_format("hermes"))
    asked = request({"role": "user", "content": "q"})
    conversations.asked(asked)
    reply = {"role": "assistant", "content": "a"}
    conversations.replied(asked, request(reply).messages[0])
    tools = [{"type": "function", "function": {"name": "add"}}]
    text, turns = conversations.asked(request({"role": "user", "content": "q"}, reply, tools=tools))
    assert turns.after is None and text.startswith(REWRITTEN)
