"""Conversations of the published layout: whatever Parquet made of the calls, they come out as somebody wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rla_programs.collecting.conversations import Conversation, read_conversations, template_messages
from rla_programs.collecting.published import NotAConversation, conversations_at, published_conversation

from rla.errors import UserError
from rla.store.manifest import Origin
from rla.store.shards import ShardWriter

USER = {"role": "user", "content": "Add."}
ANSWER = {"role": "assistant", "content": "7"}


def call(arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "code_interpreter", "arguments": arguments}}


def asking(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def calls_of(one: Conversation) -> list[Any]:
    return [
        (made["function"]["name"], made["function"]["arguments"])
        for message in template_messages(one.messages)
        for made in message.get("tool_calls", [])
    ]


def test_arguments_that_arrow_has_padded_lose_their_nulls(tmp_path: Path) -> None:
    rows = [
        {"messages": [USER, asking(call({"code": "print(7)"})), {"role": "tool", "content": "7"}, ANSWER]},
        {"messages": [USER, asking(call({"path": "a.txt"}), call({"code": ""})), ANSWER]},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "sft.parquet")
    padded = pq.read_table(tmp_path / "sft.parquet").to_pylist()[0]["messages"][1]["tool_calls"][0]
    assert padded["function"]["arguments"] == {"code": "print(7)", "path": None}  # what is to be undone
    first, second = conversations_at(tmp_path / "sft.parquet")
    assert calls_of(first) == [("code_interpreter", {"code": "print(7)"})]
    assert calls_of(second) == [("code_interpreter", {"path": "a.txt"}), ("code_interpreter", {"code": ""})]
    assert [one.role for one in first.messages] == ["user", "assistant", "tool", "assistant"]
    assert first.messages[1].content == ""
    assert (first.source, first.outcome, first.teacher) == ("sft.parquet", None, "sft.parquet")


def test_arguments_may_be_json_text_whose_nulls_are_its_own() -> None:
    one = published_conversation({"messages": [USER, asking(call('{"code": "x", "limit": null}'))]}, teacher="t")
    assert calls_of(one) == [("code_interpreter", {"code": "x", "limit": None})]


@pytest.mark.parametrize("tools", [[{"type": "function", "extra": None}], '[{"type": "function"}]'])
def test_tools_may_be_a_list_or_its_json_text(tools: Any) -> None:
    row = {"messages": [USER, ANSWER], "tools": tools, "enable_thinking": True}
    assert published_conversation(row, teacher="t").tools == '[{"type": "function"}]'


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ("Add.", "not a list"),
        ([USER], "nobody replies"),
        ([{"role": "critic", "content": "x"}, ANSWER], "whose role"),
        ([{"role": ["user"], "content": "x"}, ANSWER], "whose role"),
        ([{"from": "critic", "value": "x"}, ANSWER], "whose role"),
        ([USER, {"role": "assistant", "content": [{"type": "image_url", "image_url": "x"}]}], "not text"),
        ([USER, {"from": "function_call", "value": "no JSON"}], "not JSON"),
        ([USER, {"role": "system", "content": "x"}, ANSWER], "not the first"),
        ([USER, {"role": "assistant", "content": [{"type": "text"}]}], "not text"),
        ([USER, asking(call("{"))], "not JSON"),
        ([USER, asking(call("[1]"))], "not an object"),
        ([USER, asking({"function": {"arguments": "{}"}})], "without a name"),
        ([{**USER, "tool_calls": [call("{}")]}, ANSWER], "role user"),
    ],
)
def test_a_row_that_is_no_conversation_says_why(messages: Any, fault: str) -> None:
    with pytest.raises(NotAConversation, match=fault):
        published_conversation({"messages": messages}, teacher="t")


def test_rows_that_are_none_are_left_out_and_told(tmp_path: Path) -> None:
    rows = [{"messages": [USER]}, {"messages": [USER, ANSWER], "data_source": "math"}]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    told: list[str] = []
    (found,) = conversations_at(tmp_path, tell=told.append)
    assert found.source == "math"
    assert told == [f"{tmp_path}: 1 rows are not conversations; own.jsonl, line 1: nobody replies"]


def test_lines_that_are_no_objects_are_counted_and_told(tmp_path: Path) -> None:
    lines = [json.dumps({"messages": [USER, ANSWER]}), "", "[1]", "null", '"a text"']
    (tmp_path / "own.jsonl").write_text("\n".join(lines))
    told: list[str] = []
    assert len(conversations_at(tmp_path / "own.jsonl", tell=told.append)) == 1
    assert told == [f"{tmp_path}/own.jsonl: 3 rows are not conversations; own.jsonl, line 3: no JSON object"]


def test_a_broken_file_of_somebody_else_is_not_called_a_stages(tmp_path: Path) -> None:
    (tmp_path / "theirs.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(UserError, match="not a readable Parquet file") as raised:
        conversations_at(tmp_path / "theirs.parquet")
    assert "fetch or write the file again" in str(raised.value) and "stage" not in str(raised.value)


def test_a_source_without_any_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="no row of it is a conversation"):
        conversations_at(tmp_path / "own.jsonl")
    with pytest.raises(UserError, match="neither a conversations shard nor a file"):
        conversations_at(tmp_path / "own.csv")
    (tmp_path / "own.jsonl").write_text("{")
    with pytest.raises(UserError, match="line 1 is not JSON in UTF-8"):
        conversations_at(tmp_path / "own.jsonl")


def test_a_shard_gives_back_what_was_written(tmp_path: Path) -> None:
    messages = [USER, asking(call({"code": "print('é')"})), {"role": "tool", "content": "é"}, ANSWER]
    one = published_conversation({"messages": messages, "tools": [{"type": "function"}], "outcome": 1}, teacher="t")
    writer = ShardWriter(tmp_path / "shard", "conversations", Origin(config="c", inputs={}, seed=0))
    writer.write(0, [one.row()])
    writer.finish({})
    assert read_conversations(tmp_path / "shard") == conversations_at(tmp_path / "shard") == [one]


@pytest.mark.parametrize(
    "odd",
    [
        [{"role": "user", "content": "half \ud83d"}, ANSWER],
        [USER, asking(call({"code": "\udc00"})), ANSWER],
        [USER, asking(call('{"code": "\\udc00"}')), ANSWER],
    ],
)
def test_a_row_with_half_a_surrogate_pair_is_left_out_and_told(tmp_path: Path, odd: Any) -> None:
    rows = [{"messages": [USER, ANSWER]}, {"messages": odd}, {"messages": [USER, ANSWER], "source": "\ud800"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    told: list[str] = []
    found = conversations_at(tmp_path / "rows.jsonl", tell=told.append)
    assert len(found) == 2 and found[1].source == "\ufffd"
    assert told == [
        f"{tmp_path / 'rows.jsonl'}: 1 rows are not conversations; rows.jsonl, line 2: half of a surrogate "
        "pair, which is not a character"
    ]


def read(*messages: dict[str, Any], **row: Any) -> list[tuple[str, str]]:
    """Role and content of each message."""
    one = published_conversation({"messages": list(messages), **row}, teacher="t")
    return [(message.role, message.content) for message in one.messages]


def test_parts_of_text_are_joined() -> None:
    parts = [{"type": "text", "text": "7 is "}, "the ", {"type": "text", "text": "sum."}]
    assert read(USER, {"role": "assistant", "content": parts}) == [("user", "Add."), ("assistant", "7 is the sum.")]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_thoughts_beside_a_content_stand_before_it(key: str) -> None:
    thought = "<think>\n3 + 4\n</think>\n\n"
    assert read(USER, {**ANSWER, key: "3 + 4\n"})[1] == ("assistant", f"{thought}7")
    assert read(USER, {**ANSWER, key: None}) == read(USER, ANSWER)
    one = published_conversation({"messages": [USER, {**asking(call("")), key: "3 + 4"}]}, teacher="t")
    assert (one.messages[1].content, calls_of(one)) == (thought, [("code_interpreter", {})])
    already = {"role": "assistant", "content": "<think>a</think>7", key: "a"}
    assert read(USER, already)[1] == ("assistant", "<think>a</think>7")


def test_developers_and_functions_speak_too() -> None:
    told = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Count."}, USER]
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [*told, legacy, {"role": "function", "name": "f", "content": "7"}, ANSWER]
    one = published_conversation({"messages": messages}, teacher="t")
    assert [(each.role, each.content) for each in one.messages] == [
        *[("system", "Be brief.\n\nCount."), ("user", "Add."), ("assistant", ""), ("tool", "7"), ("assistant", "7")]
    ]
    assert calls_of(one) == [("f", {"a": 1})]


def test_the_layout_of_sharegpt_is_read() -> None:
    turns = [
        {"from": "human", "value": "Add."},
        {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}'},
        {"from": "observation", "value": "7"},
        {"from": "gpt", "value": "It is 7."},
    ]
    one = published_conversation({"conversations": turns, "system": "Be brief.", "tools": "[]"}, teacher="t")
    assert [(each.role, each.content) for each in one.messages] == [
        *[("system", "Be brief."), ("user", "Add."), ("assistant", ""), ("tool", "7"), ("assistant", "It is 7.")]
    ]
    assert calls_of(one) == [("f", {"a": 1})]


@pytest.mark.parametrize("arguments", ["", " ", None, {}, "{}", '"{}"', "null"])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    one = published_conversation({"messages": [USER, asking(call(arguments))]}, teacher="t")
    assert calls_of(one) == [("code_interpreter", {})]


@pytest.mark.parametrize(
    "thought",
    [
        {"content": "7", "thinking": "3 + 4"},
        {"content": "7", "reasoning_content": [{"type": "text", "text": "3 + 4"}]},
        {"content": [{"type": "thinking", "thinking": "3 + 4", "text": None}, {"type": "text", "text": "7"}]},
        {"content": [{"type": "reasoning", "text": "3 + 4"}, {"type": "text", "text": "7"}]},
    ],
)
def test_a_thought_is_kept_whatever_holds_it(thought: dict[str, Any]) -> None:
    assert read(USER, {"role": "assistant", **thought})[1] == ("assistant", "<think>\n3 + 4\n</think>\n\n7")


def test_arguments_with_bare_line_breaks_and_single_backslashes_are_read() -> None:
    one = published_conversation({"messages": [USER, asking(call('{"code": "a\n\\d"}'))]}, teacher="t")
    assert calls_of(one) == [("code_interpreter", {"code": "a\n\\d"})]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [], "conversations": [{"from": "Human", "value": "Add."}, {"from": "GPT", "value": "7"}]},
        {"messages": json.dumps([USER, ANSWER])},
        {
            "messages": [
                {"role": None, "content": None, "from": "human", "value": "Add."},
                {"role": "assistant", "content": "7", "from": None, "value": None},
            ]
        },
    ],
    ids=["roles with capitals", "JSON text", "padded by Arrow"],
)
def test_a_conversation_is_read_however_it_is_laid_out(row: dict[str, Any]) -> None:
    one = published_conversation(row, teacher="t")
    assert [(each.role, each.content) for each in one.messages] == [("user", "Add."), ("assistant", "7")]
